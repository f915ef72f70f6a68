//! The CA of the serving certificates, shared by all replicas.
//!
//! It is stored in a Secret, created by the first replica. Its certificate is published in a ConfigMap for agents, and in the
//! APIService for the API server. It is rotated well before it expires: the next CA is published a day before it signs, and the
//! previous one stays published until every certificate that it has signed has expired.

use std::collections::BTreeMap;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

mod reconciler;

pub(crate) use reconciler::{CaReconciler, now};

const CA_LIFETIME: Duration = Duration::from_secs(365 * 24 * 3600);
/// The next CA is created this long before the current one expires.
const ROTATE_BEFORE_EXPIRY: Duration = Duration::from_secs(90 * 24 * 3600);
/// The next CA is published this long before it signs.
const PUBLISH_BEFORE_SIGNING: Duration = Duration::from_secs(24 * 3600);
/// Of a serving certificate.
const LEAF_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// A serving certificate is replaced at this age.
const RENEW_LEAF: Duration = Duration::from_secs(LEAF_LIFETIME.as_secs() / 2);
/// Certificates are valid from this long before they are made.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

/// The DNS name in serving certificates.
pub(crate) const SERVER_NAME: &str = "antrea.kube-system.svc";

/// A CA certificate with its key, as PEM.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ca {
    pub(crate) certificate: String,
    key: String,
    /// Creation time, in seconds since 1970.
    made: u64,
}

/// The CAs in use, as the Secret stores them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CaState {
    /// The CA that signs serving certificates.
    pub(crate) signing: Ca,
    /// The time since which `signing` signs, in seconds since 1970.
    #[serde(default)]
    since: u64,
    /// Published, and will sign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<Ca>,
    /// Has signed, and is still published.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<Ca>,
}

/// A serving certificate and its key, as PEM.
pub(crate) struct Leaf {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Whether a serving certificate has to be replaced. Also after the clock was set back: it is not valid yet then, for agents
/// with the right time.
pub(crate) fn is_renewal_due(signed: Duration, now: Duration) -> bool {
    now < signed || now >= signed + RENEW_LEAF
}

impl Ca {
    pub(crate) fn new(now: Duration) -> Result<Self, rcgen::Error> {
        let made = now.as_secs();
        let key = KeyPair::generate()?;
        let certificate = parameters(made).self_signed(&key)?.pem();
        Ok(Self { certificate, key: key.serialize_pem(), made })
    }

    /// Signs a new serving certificate.
    pub(crate) fn sign(&self, now: Duration) -> Result<Leaf, rcgen::Error> {
        let mut leaf = CertificateParams::new(vec![SERVER_NAME.to_owned(), format!("{SERVER_NAME}.cluster.local")])?;
        leaf.distinguished_name = name("antrea-controller");
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        (leaf.not_before, leaf.not_after) = (moment(now.saturating_sub(CLOCK_SKEW)), moment(now + LEAF_LIFETIME));
        let issuer = Issuer::new(parameters(self.made), KeyPair::from_pem(&self.key)?);
        let key = KeyPair::generate()?;
        let certificate = leaf.signed_by(&key, &issuer)?.pem();
        Ok(Leaf { certificate, key: key.serialize_pem() })
    }

    fn expiry(&self) -> Duration {
        Duration::from_secs(self.made) + CA_LIFETIME
    }

    /// Not before its creation either: it may have been created while the clock was ahead.
    fn is_valid(&self, now: Duration) -> bool {
        Duration::from_secs(self.made).saturating_sub(CLOCK_SKEW) <= now && now < self.expiry()
    }
}

impl CaState {
    /// The state with a first CA.
    pub(crate) fn new(now: Duration) -> Result<Self, rcgen::Error> {
        Ok(Self { signing: Ca::new(now)?, since: now.as_secs(), next: None, previous: None })
    }

    /// The certificates to publish, as PEM.
    pub(crate) fn bundle(&self) -> String {
        let all = [Some(&self.signing), self.next.as_ref(), self.previous.as_ref()];
        all.into_iter().flatten().map(|ca| ca.certificate.as_str()).collect()
    }

    /// The state that is due at `now`; `None` if it is the current one.
    pub(crate) fn rotate(&self, now: Duration) -> Result<Option<Self>, rcgen::Error> {
        let mut rotated = self.clone();
        // Certificates of the previous CA are valid for one more leaf lifetime after the switch. The switch may be late, if no
        // controller was running: so this counts from the switch, not from the creation of the next CA.
        if now > Duration::from_secs(self.since) + LEAF_LIFETIME * 2 {
            rotated.previous = None;
        }
        let is_usable = self.signing.is_valid(now);
        // A next CA that is not valid has not signed yet.
        match rotated.next.take().filter(|next| next.is_valid(now)) {
            Some(next) if now >= Duration::from_secs(next.made) + PUBLISH_BEFORE_SIGNING || !is_usable => {
                rotated.previous = Some(std::mem::replace(&mut rotated.signing, next));
                rotated.since = now.as_secs();
            }
            Some(next) => rotated.next = Some(next),
            None if now + ROTATE_BEFORE_EXPIRY >= self.signing.expiry() || !is_usable => {
                rotated.next = Some(Ca::new(now)?);
            }
            None => {}
        }
        Ok((rotated != *self).then_some(rotated))
    }

    /// The data of the Secret.
    pub(crate) fn to_data(&self) -> Result<BTreeMap<String, Vec<u8>>, serde_json::Error> {
        Ok([(KEY.to_owned(), serde_json::to_vec(self)?)].into())
    }

    /// Parses the data of the Secret.
    pub(crate) fn from_data(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(data.get(KEY).map(Vec::as_slice).unwrap_or_default())
    }
}

/// The key in the Secret.
const KEY: &str = "authorities.json";

/// The parameters of a CA follow from its creation time, so that a CA that was read from the Secret can sign.
fn parameters(made: u64) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = name(&format!("antrea-ca {made}"));
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let made = Duration::from_secs(made);
    (parameters.not_before, parameters.not_after) =
        (moment(made.saturating_sub(CLOCK_SKEW)), moment(made + CA_LIFETIME));
    parameters
}

fn name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, common);
    name
}

fn moment(since_epoch: Duration) -> OffsetDateTime {
    let seconds = i64::try_from(since_epoch.as_secs()).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1_800_000_000);
    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn a_ca_is_published_before_it_signs_and_until_its_last_certificate_expires() {
        let mut state = CaState::new(NOW).unwrap();
        let mut signing_cas = vec![state.signing.certificate.clone()];
        let mut known_since = BTreeMap::from([(state.signing.certificate.clone(), NOW)]);
        // Three years, checked every day.
        for day in 0..3 * 365 {
            let now = NOW + DAY * day;
            if let Some(rotated) = state.rotate(now).unwrap() {
                let (before, after) = (state.bundle(), rotated.bundle());
                if rotated.signing != state.signing {
                    assert!(before.contains(&rotated.signing.certificate), "day {day}: signs and was not published");
                    assert!(after.contains(&state.signing.certificate), "day {day}: the previous CA is not published");
                    let since = known_since[&rotated.signing.certificate];
                    assert!(now - since >= PUBLISH_BEFORE_SIGNING, "day {day}");
                    signing_cas.push(rotated.signing.certificate.clone());
                }
                if let Some(next) = &rotated.next {
                    known_since.entry(next.certificate.clone()).or_insert(now);
                }
                state = rotated;
            }
            assert!(state.signing.expiry() > now + LEAF_LIFETIME, "day {day}: signs beyond its expiry");
        }
        // About every nine months.
        assert_eq!(signing_cas.len(), 4);
        assert_eq!(state.rotate(NOW + DAY * (3 * 365)).unwrap().map(|_| ()), None);
    }

    #[test]
    fn certificates_stay_valid_if_a_rotation_is_late() {
        let first = CaState::new(NOW).unwrap();
        let prepared = NOW + CA_LIFETIME - ROTATE_BEFORE_EXPIRY;
        let known = first.rotate(prepared).unwrap().unwrap();
        // No replica runs. The first one to start signs with the current CA, before it leads and rotates.
        for away in [PUBLISH_BEFORE_SIGNING, PUBLISH_BEFORE_SIGNING * 5, PUBLISH_BEFORE_SIGNING * 80] {
            let mut now = prepared + away;
            let mut rotated = known.rotate(now).unwrap().unwrap();
            assert!(rotated.signing.certificate != first.signing.certificate);
            let signed_until = now + LEAF_LIFETIME;
            while now <= signed_until {
                assert!(rotated.bundle().contains(&first.signing.certificate), "{away:?}: unpublished at {now:?}");
                now += DAY / 24;
                rotated = rotated.rotate(now).unwrap().unwrap_or(rotated);
            }
            let end = rotated.rotate(now + LEAF_LIFETIME * 2).unwrap().unwrap();
            assert!(!end.bundle().contains(&first.signing.certificate), "{away:?}: published for ever");
        }
    }

    /// The CA after the leader has reconciled it a few times at `now`.
    fn settled(mut state: CaState, now: Duration) -> CaState {
        for _ in 0..4 {
            state = state.rotate(now).unwrap().unwrap_or(state);
        }
        assert!(state.rotate(now).unwrap().is_none(), "rotates for ever at {now:?}");
        state
    }

    #[test]
    fn a_clock_that_jumps_and_returns_leaves_a_valid_ca() {
        const YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3600);
        let first = CaState::new(NOW).unwrap();
        for jumped in [NOW + DAY, NOW - DAY, NOW + YEARS, NOW - YEARS, Duration::ZERO] {
            let during = settled(first.clone(), jumped);
            assert!(during.signing.is_valid(jumped), "{jumped:?}");
            // Serving certificates of the first CA are in use until replicas have loaded the other.
            assert!(during.bundle().contains(&first.signing.certificate), "{jumped:?}: lost the first CA");
            let after = settled(during.clone(), NOW + DAY / 24);
            assert!(after.signing.is_valid(NOW + DAY / 24), "{jumped:?}");
            assert!(after.bundle().contains(&during.signing.certificate), "{jumped:?}: the last CA is not published");
        }
        // Within a day forward, nothing is rotated.
        assert!(settled(first.clone(), NOW + DAY) == first);
        // A next CA from the future has not signed, and never does.
        let next = Some(Ca::new(NOW + YEARS).unwrap());
        let future = CaState { next: next.clone(), ..first.clone() };
        assert!(settled(future, NOW) == first);
    }

    #[test]
    fn a_serving_certificate_is_renewed_whichever_way_the_clock_jumps() {
        for (now, due) in
            [(NOW, false), (NOW + DAY / 4, false), (NOW + DAY / 2, true), (NOW + DAY * 3650, true), (NOW - DAY, true)]
        {
            assert_eq!(is_renewal_due(NOW, now), due, "{now:?}");
        }
    }

    #[test]
    fn a_ca_read_from_the_secret_signs() {
        let state = CaState::new(NOW).unwrap();
        let read = CaState::from_data(&state.to_data().unwrap()).unwrap();
        assert!(read == state);
        let leaf = read.signing.sign(NOW).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(leaf.certificate.as_bytes()).unwrap();
        let (_, ca) = x509_parser::pem::parse_x509_pem(state.bundle().as_bytes()).unwrap();
        let (leaf, ca) = (pem.parse_x509().unwrap(), ca.parse_x509().unwrap());
        assert_eq!(leaf.issuer(), ca.subject());
        assert!(CaState::from_data(&BTreeMap::new()).is_err());
    }
}
