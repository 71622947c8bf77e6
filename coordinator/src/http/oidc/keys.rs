//! Public keys of an OIDC issuer. A key file is read again when it has changed. Keys at a URL are fetched when they are
//! an hour old, and when a token is signed with an unknown key, so that an issuer can rotate its keys at any time; at
//! most every ten seconds, whatever tokens arrive. If a fetch fails, the last keys stay.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use jsonwebtoken::jwk::{AlgorithmParameters, Jwk, JwkSet};
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use crate::config::KeySource;

/// Time that fetched keys are used without another fetch.
const FRESH: Duration = Duration::from_secs(3600);
/// Least time between two fetches.
const PAUSE: Duration = Duration::from_secs(10);
/// Longest fetch; a call waits for it.
const FETCH_LIMIT: Duration = Duration::from_secs(5);
/// Longest key list in bytes.
const MAX_BYTES: u64 = 256 * 1024;
/// The system's trusted authorities on Debian and its derivatives.
const SYSTEM_CA: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Why keys cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    /// A file cannot be read.
    #[error("{key}: cannot read {}", path.display())]
    Read {
        /// Key of the config that names it.
        key: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The content is not a key list.
    #[error("{key}: {place} is not a JWKS list of public keys")]
    Malformed {
        /// Key of the config that names it.
        key: &'static str,
        place: String,
        source: serde_json::Error,
    },
    /// A file of authorities contains none.
    #[error("oidc.jwks_ca: {} is not a list of certificates: {why}", path.display())]
    Authorities { path: PathBuf, why: String },
    /// The issuer does not answer properly.
    #[error("oidc.jwks_url: cannot get {url}")]
    Fetch {
        url: String,
        source: Box<ureq::Error>,
    },
}

/// The keys of an issuer.
#[derive(Debug)]
pub(super) enum IssuerKeys {
    File(FileKeys),
    Url(Arc<UrlKeys>),
}

#[derive(Debug)]
pub(super) struct FileKeys {
    path: PathBuf,
    known: Mutex<LoadedKeys>,
}

#[derive(Debug)]
struct LoadedKeys {
    /// Time of the last change of the file.
    changed: Option<SystemTime>,
    set: Vec<Jwk>,
}

#[derive(Debug)]
pub(super) struct UrlKeys {
    url: String,
    tls: TlsConfig,
    had: Mutex<FetchedKeys>,
    /// Held while the issuer is asked.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct FetchedKeys {
    set: Vec<Jwk>,
    /// Time of the last answer.
    at: Option<Instant>,
    /// Time of the last request.
    asked: Option<Instant>,
}

impl IssuerKeys {
    /// Reads a file at once; an issuer is asked when a token comes, since it may start later than the coordinator.
    pub(super) fn from(source: KeySource) -> Result<Self, KeysError> {
        match source {
            KeySource::File(path) => {
                let known = Mutex::new(read(&path)?);
                Ok(IssuerKeys::File(FileKeys { path, known }))
            }
            KeySource::Url { url, ca } => {
                let tls = trusting(ca.as_deref())?;
                Ok(IssuerKeys::Url(Arc::new(UrlKeys {
                    url,
                    tls,
                    had: Mutex::default(),
                    asking: tokio::sync::Mutex::default(),
                })))
            }
        }
    }

    /// Returns the keys, after a fetch if that may bring the key of this id.
    pub(super) async fn with(&self, id: Option<&str>) -> Vec<Jwk> {
        match self {
            IssuerKeys::File(keys) => keys.now(),
            IssuerKeys::Url(keys) => keys.with(id).await,
        }
    }
}

impl FileKeys {
    fn now(&self) -> Vec<Jwk> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = fs::metadata(&self.path).and_then(|data| data.modified());
        let changed = changed.ok();
        if changed.is_some() && changed != known.changed {
            match read(&self.path) {
                Ok(newer) => *known = newer,
                Err(error) => tracing::warn!("{error}: the keys that were read last stay in use"),
            }
        }
        known.set.clone()
    }
}

impl UrlKeys {
    async fn with(self: &Arc<Self>, id: Option<&str>) -> Vec<Jwk> {
        if self.lacks(id) {
            // Another task may be fetching it.
            let _one_asks = self.asking.lock().await;
            if self.lacks(id) && self.may_ask() {
                self.ask().await;
            }
        } else if self.are_old()
            && self.may_ask()
            && let Ok(_one_asks) = self.asking.try_lock()
        {
            self.ask().await;
        }
        self.had().set.clone()
    }

    fn had(&self) -> std::sync::MutexGuard<'_, FetchedKeys> {
        self.had.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lacks(&self, id: Option<&str>) -> bool {
        let had = self.had();
        match id {
            Some(id) => !had.set.iter().any(|key| names(key, id)),
            None => had.set.is_empty(),
        }
    }

    fn are_old(&self) -> bool {
        self.had().at.is_none_or(|at| at.elapsed() > FRESH)
    }

    fn may_ask(&self) -> bool {
        self.had().asked.is_none_or(|at| at.elapsed() > PAUSE)
    }

    async fn ask(self: &Arc<Self>) {
        self.had().asked = Some(Instant::now());
        let keys = Arc::clone(self);
        let fetched = tokio::task::spawn_blocking(move || keys.fetch()).await;
        match fetched {
            Ok(Ok(set)) => {
                let mut had = self.had();
                had.set = set;
                had.at = Some(Instant::now());
            }
            Ok(Err(error)) => {
                let error = anyhow::Error::from(error);
                tracing::warn!("{error:#}: the keys that were fetched last stay in use");
            }
            Err(error) => tracing::warn!("fetching the keys of the issuer ended early: {error}"),
        }
    }

    fn fetch(&self) -> Result<Vec<Jwk>, KeysError> {
        let config = ureq::Agent::config_builder()
            .tls_config(self.tls.clone())
            .timeout_global(Some(FETCH_LIMIT))
            // A redirect would lead to another issuer.
            .max_redirects(0)
            .build();
        let fetched = ureq::Agent::from(config)
            .get(&self.url)
            .call()
            .and_then(|answer| {
                let body = answer.into_body().into_with_config().limit(MAX_BYTES);
                body.read_to_vec()
            });
        let text = fetched.map_err(|source| KeysError::Fetch {
            url: self.url.clone(),
            source: Box::new(source),
        })?;
        public("oidc.jwks_url", &self.url, &text)
    }
}

fn names(key: &Jwk, id: &str) -> bool {
    key.common.key_id.as_deref() == Some(id)
}

fn read(file: &Path) -> Result<LoadedKeys, KeysError> {
    let changed = fs::metadata(file).and_then(|data| data.modified()).ok();
    let text = contents("oidc.jwks_file", file)?;
    let set = public("oidc.jwks_file", &file.display().to_string(), &text)?;
    Ok(LoadedKeys { changed, set })
}

fn contents(key: &'static str, file: &Path) -> Result<Vec<u8>, KeysError> {
    fs::read(file).map_err(|source| KeysError::Read {
        key,
        path: file.to_owned(),
        source,
    })
}

/// Parses the public keys in a text.
pub(super) fn public(key: &'static str, place: &str, text: &[u8]) -> Result<Vec<Jwk>, KeysError> {
    let set: JwkSet = serde_json::from_slice(text).map_err(|source| KeysError::Malformed {
        key,
        place: place.to_owned(),
        source,
    })?;
    // A shared secret would let everyone who verifies tokens sign them too.
    let public = |key: &Jwk| !matches!(key.algorithm, AlgorithmParameters::OctetKey(_));
    Ok(set.keys.into_iter().filter(public).collect())
}

/// Returns the TLS configuration that verifies the issuer.
fn trusting(ca: Option<&Path>) -> Result<TlsConfig, KeysError> {
    let path = ca.unwrap_or(Path::new(SYSTEM_CA));
    let wrong = |why: String| KeysError::Authorities {
        path: path.to_owned(),
        why,
    };
    let text = match contents("oidc.jwks_ca", path) {
        // Without authorities, an issuer on this machine can still be asked.
        Err(_) if ca.is_none() => Vec::new(),
        read => read?,
    };
    let items: Result<Vec<PemItem<'static>>, _> = parse_pem(&text).collect();
    let items = items.map_err(|error| wrong(error.to_string()))?;
    let roots: Vec<_> = items
        .into_iter()
        .filter_map(|item| match item {
            PemItem::Certificate(it) => Some(it),
            _ => None,
        })
        .collect();
    if roots.is_empty() && ca.is_some() {
        return Err(wrong("there is none in it".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(TlsConfig::builder()
        .root_certs(RootCerts::new_with_certs(&roots))
        .unversioned_rustls_crypto_provider(provider)
        .build())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// An issuer on this machine that serves the given keys.
    struct TestKeyServer {
        url: String,
        keys: Arc<Mutex<String>>,
        asked: Arc<AtomicUsize>,
    }

    fn jwks(ids: &[&str]) -> String {
        let key =
            |id: &&str| serde_json::json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "x": "AA" });
        let keys: Vec<_> = ids.iter().map(key).collect();
        serde_json::json!({ "keys": keys }).to_string()
    }

    fn answer(mut stream: TcpStream, body: &str) {
        let mut head = [0; 4096];
        let _whole = stream.read(&mut head);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        let _gone = stream.write_all(head.as_bytes());
        let _gone = stream.write_all(body.as_bytes());
    }

    fn issuer(ids: &[&str]) -> TestKeyServer {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/certs", listener.local_addr().unwrap());
        let keys = Arc::new(Mutex::new(jwks(ids)));
        let asked = Arc::new(AtomicUsize::new(0));
        let (its, count) = (Arc::clone(&keys), Arc::clone(&asked));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                count.fetch_add(1, Ordering::SeqCst);
                answer(stream, &its.lock().unwrap());
            }
        });
        TestKeyServer { url, keys, asked }
    }

    fn of(url: &str) -> IssuerKeys {
        let url = url.to_owned();
        IssuerKeys::from(KeySource::Url { url, ca: None }).unwrap()
    }

    /// Makes the last fetch appear so much older.
    fn age(keys: &IssuerKeys, by: Duration) {
        let IssuerKeys::Url(keys) = keys else {
            unreachable!("it was made of a URL")
        };
        let mut had = keys.had();
        had.asked = had.asked.and_then(|at| at.checked_sub(by));
        had.at = had.at.and_then(|at| at.checked_sub(by));
    }

    fn ids(keys: &[Jwk]) -> Vec<&str> {
        let ids = keys.iter().filter_map(|key| key.common.key_id.as_deref());
        ids.collect()
    }

    #[tokio::test]
    async fn an_issuer_is_asked_for_keys_that_are_not_known_and_not_too_often() {
        let issuer = issuer(&["one"]);
        let keys = of(&issuer.url);
        let asked = || issuer.asked.load(Ordering::SeqCst);
        assert_eq!(asked(), 0, "it may start after us");
        assert_eq!(ids(&keys.with(Some("one")).await), ["one"]);
        keys.with(Some("one")).await;
        keys.with(None).await;
        assert_eq!(asked(), 1);
        *issuer.keys.lock().unwrap() = jwks(&["one", "two"]);
        assert_eq!(ids(&keys.with(Some("two")).await), ["one"], "too soon");
        age(&keys, PAUSE);
        assert_eq!(ids(&keys.with(Some("two")).await), ["one", "two"]);
        assert_eq!(asked(), 2);
        age(&keys, FRESH);
        *issuer.keys.lock().unwrap() = jwks(&["two"]);
        assert_eq!(ids(&keys.with(Some("one")).await), ["two"], "taken back");
        for bad in ["", "{}", "[]", "\u{0}", &"x".repeat(300_000)] {
            age(&keys, FRESH);
            *issuer.keys.lock().unwrap() = bad.to_owned();
            assert_eq!(ids(&keys.with(Some("two")).await), ["two"], "{:.9}", bad);
        }
    }

    #[tokio::test]
    async fn many_calls_ask_once() {
        let issuer = issuer(&["one"]);
        let keys = Arc::new(of(&issuer.url));
        let calls = (0..20).map(|_| {
            let keys = Arc::clone(&keys);
            tokio::spawn(async move { keys.with(Some("one")).await.len() })
        });
        for call in calls.collect::<Vec<_>>() {
            assert_eq!(call.await.unwrap(), 1);
        }
        assert_eq!(issuer.asked.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn an_issuer_that_is_not_there_has_no_keys() {
        let closed = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", closed.local_addr().unwrap());
        drop(closed);
        assert!(of(&url).with(Some("one")).await.is_empty());
    }
}
