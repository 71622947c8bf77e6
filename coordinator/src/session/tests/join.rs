//! Hosts that join over real links, and attackers.

use std::path::Path;

use sluice_common::join::{
    CertificateMessage, CertificateRequest, Credentials, JoinReply, JoinRequest, JoinSecret,
};
use sluice_transport::files::{write_private, write_public};
use sluice_transport::{
    Dialer, Identity, JoinDialer, JoinLine, JoiningPeer, SigningRequest, TlsFiles,
    parse_certificates,
};

use super::*;
use crate::identity::rollover;

type Frames = (FrameWriter, FrameReader);

/// Returns a join line for the coordinator's address.
fn line(harness: &Harness, body: &str) -> JoinLine {
    let (status, made) = harness.post("/v1/join-tokens", body);
    assert_eq!(status, 201, "{made}");
    made["line"].as_str().unwrap().parse().unwrap()
}

async fn joining_peer(line: &JoinLine) -> (JoinDialer, JoiningPeer) {
    let dialer = JoinDialer::new(line.authority).unwrap();
    let joining_peer = dialer.dial(&line.addresses[0]).await.unwrap();
    (dialer, joining_peer)
}

/// A host's key, with a certificate request for it.
struct JoiningHost {
    name: &'static str,
    key: String,
    request: Vec<u8>,
}

impl JoiningHost {
    fn new(name: &'static str) -> Self {
        let (key, request) = SigningRequest::make().unwrap();
        Self { name, key, request }
    }

    async fn join(&self, line: &JoinLine) -> Result<Credentials, String> {
        let (_dialer, joining_peer) = joining_peer(line).await;
        let (mut ask, mut answer) = joining_peer.open().await.unwrap();
        let request = JoinRequest {
            version: "test".to_owned(),
            secret: line.secret.clone(),
            node: NodeName::new(self.name).unwrap(),
            pool: None,
            request: self.request.clone(),
        };
        ask.send(&request).await.unwrap();
        match receive(&mut answer).await {
            JoinReply::Joined(credentials) => Ok(credentials),
            JoinReply::Refused { message, .. } => Err(message),
        }
    }

    fn identity(&self, credentials: &Credentials, dir: &Path) -> Identity {
        let [ca, cert, key] = ["ca", "cert", "key"].map(|name| dir.join(name));
        write_public(&ca, &credentials.authorities).unwrap();
        write_public(&cert, &credentials.certificate).unwrap();
        write_private(&key, &self.key).unwrap();
        Identity::load(&TlsFiles { ca, cert, key }).unwrap()
    }
}

async fn receive<T: serde::de::DeserializeOwned>(reader: &mut FrameReader) -> T {
    let message = timeout(SOON, reader.next()).await.unwrap();
    message.unwrap().unwrap()
}

/// Keeps a session open after its hello.
struct OpenSession {
    connection: Connection,
    _dialer: Dialer,
    _streams: [Frames; 2],
}

/// Sends a hello with this identity.
async fn hello(harness: &Harness, identity: &Identity, name: &str) -> (HelloReply, OpenSession) {
    let dialer = Dialer::new(identity).unwrap();
    let connection = dialer.dial(&address(harness)).await.unwrap();
    let heartbeat = open(&connection, StreamKind::Heartbeat).await;
    let mut control = open(&connection, StreamKind::Control).await;
    control.0.send(&words(name, 1)).await.unwrap();
    let greeting = receive(&mut control.1).await;
    let held = OpenSession {
        connection,
        _dialer: dialer,
        _streams: [heartbeat, control],
    };
    (greeting, held)
}

async fn let_in(harness: &Harness, identity: &Identity, name: &str) -> OpenSession {
    let (greeting, held) = hello(harness, identity, name).await;
    assert!(matches!(greeting, HelloReply::Welcome(_)), "{greeting:?}");
    held
}

async fn turned_away(harness: &Harness, identity: &Identity, name: &str) -> String {
    match hello(harness, identity, name).await.0 {
        HelloReply::Refused { message } => message,
        HelloReply::Welcome(welcome) => panic!("{welcome:?}"),
    }
}

/// Opens the certificate stream; returns its first message.
async fn certificates(held: &OpenSession) -> (Frames, CertificateMessage) {
    let mut stream = open(&held.connection, StreamKind::Certificates).await;
    let word = receive(&mut stream.1).await;
    (stream, word)
}

async fn renew(stream: &mut Frames, request: &[u8]) -> Result<Credentials, String> {
    let request = request.to_vec();
    stream
        .0
        .send(&CertificateRequest { request })
        .await
        .unwrap();
    match receive(&mut stream.1).await {
        CertificateMessage::Certificate(credentials) => Ok(credentials),
        CertificateMessage::Refused { message } => Err(message),
        word @ CertificateMessage::Authorities { .. } => panic!("{word:?}"),
    }
}

#[test]
fn a_host_joins_with_its_own_key_and_is_let_in_by_what_it_was_given() {
    let harness = Harness::start();
    let line = line(&harness, r#"{"labels":{"rack":"7"}}"#);
    let dir = tempfile::tempdir().unwrap();
    harness.runtime.block_on(async {
        let host = JoiningHost::new("fresh");
        let identity = host.identity(&host.join(&line).await.unwrap(), dir.path());
        let pool = identity.peer_identity().claim.pool.clone().unwrap();
        assert_eq!(pool.as_str(), "default");
        let life = identity.validity();
        let days = life.until.duration_since(life.from).unwrap().as_secs() / 86_400;
        assert_eq!(days, 7);
        let _held = let_in(&harness, &identity, "fresh").await;
        // The same key may be used again; another host finds the token used up.
        host.join(&line).await.unwrap();
        let refused = JoiningHost::new("late").join(&line).await.unwrap_err();
        assert!(refused.contains("is used up"), "{refused}");
        // Another node's name does not match the certificate.
        let message = turned_away(&harness, &identity, "other").await;
        assert!(
            message.contains("certificate is of node `fresh`"),
            "{message}"
        );
    });
    assert_eq!(harness.get("/v1/nodes/fresh").1["labels"]["rack"], "7");
    let events = harness.get("/v1/events").1.to_string();
    for wanted in ["join_token_used", "join_refused"] {
        assert!(events.contains(wanted), "{events}");
    }
}

#[test]
fn whoever_means_no_good_is_sent_away_and_nobody_else_notices() {
    let harness = Harness::start();
    let line = line(&harness, r#"{"uses":5}"#);
    harness.runtime.block_on(async {
        let wrong = JoinLine {
            secret: JoinSecret([1; 32]),
            ..line.clone()
        };
        let refused = JoiningHost::new("a").join(&wrong).await.unwrap_err();
        assert!(
            refused.contains("no join token has this secret"),
            "{refused}"
        );

        let mut forged = JoiningHost::new("a");
        let last = forged.request.len() - 1;
        forged.request[last] ^= 1;
        let refused = forged.join(&line).await.unwrap_err();
        assert!(refused.contains("not signed by its own key"), "{refused}");

        // Random bytes, a frame of 4 GiB, half a frame and then silence.
        let noise: [&[u8]; 3] = [&[0x5a; 64], &[0xff; 4], &[200, 0, 0, 0, 1, 2]];
        for bytes in noise {
            let (_dialer, joining_peer) = joining_peer(&line).await;
            let (mut ask, _answer) = joining_peer.open().await.unwrap();
            ask.send_bytes(bytes).await.unwrap();
            let why = timeout(SOON, joining_peer.closed()).await.unwrap();
            let expected = ["request to join is malformed", "sent nothing within"];
            assert!(
                expected
                    .iter()
                    .any(|expected_part| why.contains(expected_part)),
                "{why}"
            );
        }
        JoiningHost::new("good").join(&line).await.unwrap();
    });
    let nodes = &harness.get("/v1/join-tokens").1["items"][0]["nodes"];
    assert_eq!(*nodes, serde_json::json!(["good"]));
}

#[test]
fn a_linked_node_is_given_its_next_certificate_without_a_break() {
    let harness = Harness::start();
    let line = line(&harness, "{}");
    let dir = tempfile::tempdir().unwrap();
    harness.runtime.block_on(async {
        let host = JoiningHost::new("n1");
        let credentials = host.join(&line).await.unwrap();
        let identity = host.identity(&credentials, dir.path());
        let held = let_in(&harness, &identity, "n1").await;
        let (mut stream, word) = certificates(&held).await;
        let CertificateMessage::Authorities { pem, issuing } = word else {
            panic!("{word:?}");
        };
        assert_eq!(
            (pem, issuing),
            (credentials.authorities, Some(line.authority))
        );
        // A malformed request is refused with a message, and the link stays.
        let refused = renew(&mut stream, &[1, 2, 3]).await.unwrap_err();
        assert!(refused.contains("cannot be read"), "{refused}");
        let refused = renew(&mut stream, &host.request).await.unwrap_err();
        assert!(refused.contains("asked again within a second"), "{refused}");
        // A newer stream takes the place of one that has ended or not.
        stream.0.finish();
        let (_ended_by_the_next, _) = certificates(&held).await;
        let next = JoiningHost::new("n1");
        let (mut stream, _) = certificates(&held).await;
        let renewed = renew(&mut stream, &next.request).await.unwrap();
        let renewed = next.identity(&renewed, dir.path());
        assert_eq!(renewed.peer_identity(), identity.peer_identity());
        let_in(&harness, &renewed, "n1").await;
    });
}

#[test]
fn a_new_authority_reaches_linked_nodes_and_the_old_one_is_retired_behind_them() {
    let harness = Harness::start();
    let line = line(&harness, "{}");
    let dir = tempfile::tempdir().unwrap();
    harness.runtime.block_on(async {
        let host = JoiningHost::new("n1");
        let identity = host.identity(&host.join(&line).await.unwrap(), dir.path());
        let held = let_in(&harness, &identity, "n1").await;
        let (mut stream, _before) = certificates(&held).await;

        let new = rollover::rotate(&harness.data).unwrap();
        let word: CertificateMessage = receive(&mut stream.1).await;
        let CertificateMessage::Authorities { pem, issuing } = word else {
            panic!("{word:?}");
        };
        assert_eq!(
            (parse_certificates(&pem).unwrap().len(), issuing),
            (2, Some(new))
        );
        let renewed = renew(&mut stream, &host.request).await.unwrap();
        let renewed = host.identity(&renewed, dir.path());
        assert_eq!(renewed.authority(), new);

        let retired = rollover::retire(&harness.data, None, true).unwrap();
        assert_eq!(retired, line.authority);
        let word: CertificateMessage = receive(&mut stream.1).await;
        let CertificateMessage::Authorities { pem, .. } = word else {
            panic!("{word:?}");
        };
        assert_eq!(parse_certificates(&pem).unwrap().len(), 1);
        let _held = let_in(&harness, &renewed, "n1").await;
        // The old certificate is of an untrusted authority.
        let old = Dialer::new(&identity).unwrap();
        assert!(old.dial(&address(&harness)).await.is_err());
    });
}
