//! The authority behind the controllers' certificates, which all replicas share.
//!
//! It is in a Secret, made by whichever replica is first. Its certificate is in a ConfigMap, where agents read it, and in the
//! APIServices, where the API server does. It is replaced well before its end: the next one is made known to everybody first, signs
//! some hours later, and the one before stays known until nothing that it has signed is good any more.

use std::collections::BTreeMap;
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;

mod keeper;

pub(crate) use keeper::{Keeper, RENEW_LEAF, now};

/// How long an authority is good.
const LIFE: Duration = Duration::from_secs(365 * 24 * 3600);
/// How long before its end the next one is made.
const PREPARE: Duration = Duration::from_secs(90 * 24 * 3600);
/// How long the next one is known before it signs.
const KNOWN_FIRST: Duration = Duration::from_secs(24 * 3600);
/// How long a replica's own certificate is good; it is replaced after half of that.
pub(crate) const LEAF_LIFE: Duration = Duration::from_secs(24 * 3600);
/// Clocks differ.
const EARLIER: Duration = Duration::from_secs(300);

/// The names of the Service, which certificates are for.
pub(crate) const SERVER_NAME: &str = "antrea.kube-system.svc";

/// A certificate with its key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Signer {
    pub(crate) certificate: String,
    key: String,
    /// When it was made, in seconds since 1970.
    made: u64,
}

/// All authorities that are in use.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Authorities {
    /// Signs.
    pub(crate) signing: Signer,
    /// Since when, in seconds since 1970.
    #[serde(default)]
    since: u64,
    /// Will sign.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    next: Option<Signer>,
    /// Has signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<Signer>,
}

/// A replica's own certificate and key, as PEM.
pub(crate) struct Leaf {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Signer {
    /// A new authority.
    pub(crate) fn new(now: Duration) -> Result<Self, rcgen::Error> {
        let made = now.as_secs();
        let key = KeyPair::generate()?;
        let certificate = parameters(made).self_signed(&key)?.pem();
        Ok(Self { certificate, key: key.serialize_pem(), made })
    }

    /// A certificate for a server that is reached by the Service's name.
    pub(crate) fn sign(&self, now: Duration) -> Result<Leaf, rcgen::Error> {
        let mut leaf = CertificateParams::new(vec![SERVER_NAME.to_owned(), format!("{SERVER_NAME}.cluster.local")])?;
        leaf.distinguished_name = name("antrea-controller");
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        (leaf.not_before, leaf.not_after) = (moment(now.saturating_sub(EARLIER)), moment(now + LEAF_LIFE));
        let issuer = Issuer::new(parameters(self.made), KeyPair::from_pem(&self.key)?);
        let key = KeyPair::generate()?;
        let certificate = leaf.signed_by(&key, &issuer)?.pem();
        Ok(Leaf { certificate, key: key.serialize_pem() })
    }

    fn end(&self) -> Duration {
        Duration::from_secs(self.made) + LIFE
    }
}

impl Authorities {
    /// The first.
    pub(crate) fn new(now: Duration) -> Result<Self, rcgen::Error> {
        Ok(Self { signing: Signer::new(now)?, since: now.as_secs(), next: None, previous: None })
    }

    /// All that are to be believed, as PEM.
    pub(crate) fn bundle(&self) -> String {
        let all = [Some(&self.signing), self.next.as_ref(), self.previous.as_ref()];
        all.into_iter().flatten().map(|signer| signer.certificate.as_str()).collect()
    }

    /// What has to become of them by now; nothing if they are as they should be.
    pub(crate) fn turn(&self, now: Duration) -> Result<Option<Self>, rcgen::Error> {
        let mut turned = self.clone();
        // What it has signed is good for one more life of a leaf after the other one signs, which may be long after that was made:
        // while no controller ran, nobody turned it.
        if now > Duration::from_secs(self.since) + LEAF_LIFE * 2 {
            turned.previous = None;
        }
        match turned.next.take() {
            Some(next) if now >= Duration::from_secs(next.made) + KNOWN_FIRST || now >= self.signing.end() => {
                turned.previous = Some(std::mem::replace(&mut turned.signing, next));
                turned.since = now.as_secs();
            }
            Some(next) => turned.next = Some(next),
            None if now + PREPARE >= self.signing.end() => turned.next = Some(Signer::new(now)?),
            None => {}
        }
        Ok((turned != *self).then_some(turned))
    }

    /// As a Secret holds them.
    pub(crate) fn to_data(&self) -> Result<BTreeMap<String, Vec<u8>>, serde_json::Error> {
        Ok([(KEY.to_owned(), serde_json::to_vec(self)?)].into())
    }

    /// From a Secret.
    pub(crate) fn from_data(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(data.get(KEY).map(Vec::as_slice).unwrap_or_default())
    }
}

/// Where in a Secret.
const KEY: &str = "authorities.json";

/// All authorities of a time have the same parameters, so that one can sign that was only read.
fn parameters(made: u64) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = name(&format!("antrea-ca {made}"));
    parameters.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let made = Duration::from_secs(made);
    (parameters.not_before, parameters.not_after) = (moment(made.saturating_sub(EARLIER)), moment(made + LIFE));
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
    fn whoever_signs_was_known_before_and_stays_known_as_long_as_what_it_signed() {
        let mut authorities = Authorities::new(NOW).unwrap();
        let mut signers = vec![authorities.signing.certificate.clone()];
        let mut known_since = BTreeMap::from([(authorities.signing.certificate.clone(), NOW)]);
        // Three years, a look every day.
        for day in 0..3 * 365 {
            let now = NOW + DAY * day;
            if let Some(turned) = authorities.turn(now).unwrap() {
                let (before, after) = (authorities.bundle(), turned.bundle());
                if turned.signing != authorities.signing {
                    assert!(before.contains(&turned.signing.certificate), "day {day}: signs and was not known");
                    assert!(after.contains(&authorities.signing.certificate), "day {day}: what was signed is lost");
                    let since = known_since[&turned.signing.certificate];
                    assert!(now - since >= KNOWN_FIRST, "day {day}");
                    signers.push(turned.signing.certificate.clone());
                }
                if let Some(next) = &turned.next {
                    known_since.entry(next.certificate.clone()).or_insert(now);
                }
                authorities = turned;
            }
            assert!(authorities.signing.end() > now + LEAF_LIFE, "day {day}: signs beyond its end");
        }
        // Every nine months or so.
        assert_eq!(signers.len(), 4);
        assert_eq!(authorities.turn(NOW + DAY * (3 * 365)).unwrap().map(|_| ()), None);
    }

    #[test]
    fn what_was_signed_stays_good_also_if_nobody_was_there_to_turn_in_time() {
        let first = Authorities::new(NOW).unwrap();
        let prepared = NOW + LIFE - PREPARE;
        let known = first.turn(prepared).unwrap().unwrap();
        // All replicas are away. One that comes back signs with what there is, before it leads and turns.
        for away in [KNOWN_FIRST, KNOWN_FIRST * 5, KNOWN_FIRST * 80] {
            let mut now = prepared + away;
            let mut turned = known.turn(now).unwrap().unwrap();
            assert!(turned.signing.certificate != first.signing.certificate);
            let signed_until = now + LEAF_LIFE;
            while now <= signed_until {
                assert!(turned.bundle().contains(&first.signing.certificate), "{away:?}: given up at {now:?}");
                now += DAY / 24;
                turned = turned.turn(now).unwrap().unwrap_or(turned);
            }
            let end = turned.turn(now + LEAF_LIFE * 2).unwrap().unwrap();
            assert!(!end.bundle().contains(&first.signing.certificate), "{away:?}: believed for ever");
        }
    }

    #[test]
    fn what_a_secret_holds_signs_as_before() {
        let authorities = Authorities::new(NOW).unwrap();
        let read = Authorities::from_data(&authorities.to_data().unwrap()).unwrap();
        assert!(read == authorities);
        let leaf = read.signing.sign(NOW).unwrap();
        let (_, pem) = x509_parser::pem::parse_x509_pem(leaf.certificate.as_bytes()).unwrap();
        let (_, ca) = x509_parser::pem::parse_x509_pem(authorities.bundle().as_bytes()).unwrap();
        let (leaf, ca) = (pem.parse_x509().unwrap(), ca.parse_x509().unwrap());
        assert_eq!(leaf.issuer(), ca.subject());
        assert!(Authorities::from_data(&BTreeMap::new()).is_err());
    }
}
