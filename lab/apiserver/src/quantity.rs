//! Quantities such as `100m` and `1Gi`.

/// The canonical form of a quantity; `None` if it is invalid.
pub(crate) fn canonical(text: &str) -> Option<String> {
    let digits = text.trim_start_matches(['+', '-']);
    let split = digits.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(digits.len());
    let (number, suffix) = (digits.get(..split)?, digits.get(split..)?);
    let negative = text.starts_with('-');
    if number.is_empty() || number.matches('.').count() > 1 || number == "." || text.len() - digits.len() > 1 {
        return None;
    }
    if let Some(power) =
        ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|unit| *unit == suffix).filter(|&at| at > 0)
    {
        if number.contains('.') {
            return Some(text.trim_start_matches('+').to_owned());
        }
        let mut amount: u128 = number.parse().ok()?;
        let mut power = power;
        while amount >= 1024 && amount.is_multiple_of(1024) && power < 6 {
            (amount, power) = (amount / 1024, power + 1);
        }
        let unit = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].get(power)?;
        return Some(format!("{}{amount}{unit}", if negative { "-" } else { "" }));
    }
    match power_of_ten(suffix) {
        Some(exponent) => decimal(negative, number, exponent),
        None => suffix.strip_prefix(['e', 'E']).and_then(|rest| rest.parse::<i32>().ok()).map(|_| text.to_owned()),
    }
}

/// A quantity in billionths, for comparison; `None` if it is invalid or too large.
pub(crate) fn nano(text: &str) -> Option<i128> {
    let end = text.find(|c: char| !c.is_ascii_digit() && !"+-.".contains(c)).unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(end)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().ok()?;
    let shift = 9 - i32::try_from(fraction.len()).ok()?;
    let (factor, exponent) = match ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|unit| *unit == suffix) {
        Some(power) => (1024i128.checked_pow(u32::try_from(power).ok()? + 1)?, 0),
        None => (1, power_of_ten(suffix).or_else(|| suffix.strip_prefix(['e', 'E'])?.parse().ok())?),
    };
    let amount = digits.checked_mul(factor)?;
    let power = 10i128.checked_pow((shift + exponent).unsigned_abs())?;
    if shift + exponent >= 0 { amount.checked_mul(power) } else { Some(amount / power) }
}

fn power_of_ten(suffix: &str) -> Option<i32> {
    Some(match suffix {
        "n" => -9,
        "u" => -6,
        "m" => -3,
        "" => 0,
        "k" => 3,
        "M" => 6,
        "G" => 9,
        "T" => 12,
        "P" => 15,
        "E" => 18,
        _ => return None,
    })
}

/// Digits with a point, times a power of ten, in the largest unit that leaves whole numbers.
fn decimal(negative: bool, number: &str, exponent: i32) -> Option<String> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let mut amount: u128 = format!("{whole}{fraction}").parse().ok()?;
    let mut exponent = exponent - i32::try_from(fraction.len()).ok()?;
    if amount == 0 {
        return Some("0".to_owned());
    }
    while amount.is_multiple_of(10) && exponent < 18 {
        (amount, exponent) = (amount / 10, exponent + 1);
    }
    while exponent.rem_euclid(3) != 0 {
        (amount, exponent) = (amount.checked_mul(10)?, exponent - 1);
    }
    while exponent < -9 {
        (amount, exponent) = (amount.div_ceil(1000), exponent + 3);
    }
    let unit = match exponent {
        -9 => "n",
        -6 => "u",
        -3 => "m",
        0 => "",
        3 => "k",
        6 => "M",
        9 => "G",
        12 => "T",
        15 => "P",
        _ => "E",
    };
    Some(format!("{}{amount}{unit}", if negative { "-" } else { "" }))
}

#[cfg(test)]
mod tests {
    use super::{canonical, nano};

    #[test]
    fn quantities_can_be_compared() {
        assert_eq!(nano("1500m"), nano("1.5"));
        assert_eq!(nano("1Ki"), nano("1024"));
        assert_eq!(nano("2e3"), nano("2k"));
        assert!(nano("64Mi") < nano("1Gi") && nano("-1") < nano("0"));
        assert_eq!(nano("lots"), None);
    }

    #[test]
    fn quantities_have_a_canonical_form() {
        for (text, expected) in [
            ("0.1", "100m"),
            ("1000m", "1"),
            ("1024Mi", "1Gi"),
            ("4", "4"),
            ("1000", "1k"),
            ("1.5", "1500m"),
            ("110", "110"),
            ("128974848", "128974848"),
        ] {
            assert_eq!(canonical(text).as_deref(), Some(expected), "{text}");
        }
        assert_eq!(canonical("1 Gi"), None);
        assert_eq!(canonical("x"), None);
    }
}
