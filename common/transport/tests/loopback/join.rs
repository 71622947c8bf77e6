//! Hosts that join without a certificate: whom they trust, what they get, and how misbehaving ones are handled.

use std::time::Duration;

use rcgen::{ExtendedKeyUsagePurpose, SanType};
use sluice_common::credential::Fingerprint;
use sluice_common::join::JOIN_ALPN;
use sluice_transport::{
    AcceptedPeer, Authority, Identity, JoinDialer, JoiningPeer, Listener, TransportError,
};

use crate::site::{
    Forge, LOOPBACK, Site, chain, files, identity, raw_client, raw_server_for, soon,
};

async fn stranger(site: &Site) -> JoiningPeer {
    let handshake = soon(site.listener.accept()).await.unwrap();
    match soon(handshake.finish_any()).await.unwrap() {
        AcceptedPeer::JoiningPeer(stranger) => stranger,
        AcceptedPeer::Node(node) => panic!("{node:?}"),
    }
}

/// A client of the join protocol that ignores its rules.
async fn rude(site: &Site) -> (quinn::Connection, JoiningPeer) {
    let client = raw_client(&site.authority, None, JOIN_ALPN);
    let connecting = client.connect(site.listener.local_addr(), "coordinator.sluice");
    let (connection, stranger) = tokio::join!(soon(connecting.unwrap()), stranger(site));
    (connection.unwrap(), stranger)
}

#[tokio::test]
async fn a_host_that_knows_the_authority_by_its_fingerprint_is_heard() {
    let site = Site::new();
    let dialer = JoinDialer::new(site.authority.fingerprint()).unwrap();
    let address = site.address();
    let (host, coordinator) = tokio::join!(soon(dialer.dial(&address)), stranger(&site));
    let host = host.unwrap();
    let (mut ask, mut answer) = soon(host.open()).await.unwrap();
    ask.send("let me in").await.unwrap();
    let (mut reply, mut asked) = soon(coordinator.accept()).await.unwrap();
    assert_eq!(
        soon(asked.next::<String>()).await.unwrap().unwrap(),
        "let me in"
    );
    reply.send("come in").await.unwrap();
    assert_eq!(
        soon(answer.next::<String>()).await.unwrap().unwrap(),
        "come in"
    );
}

#[tokio::test]
async fn whoever_is_not_the_coordinator_under_that_authority_is_told_nothing() {
    let site = Site::new();
    let elsewhere = Fingerprint::new([7; 32]);
    let dialer = JoinDialer::new(elsewhere).unwrap();
    let address = site.address();
    let handshake = async {
        soon(site.listener.accept())
            .await
            .unwrap()
            .finish_any()
            .await
    };
    let (host, coordinator) = tokio::join!(soon(dialer.dial(&address)), handshake);
    let said = "the other side's certificate was issued by an authority that is not trusted";
    let text = chain(&host.unwrap_err());
    assert!(text.contains(said), "{text}");
    assert!(coordinator.is_err(), "a stranger was met: {coordinator:?}");

    // A certificate of the right authority that is not the coordinator's.
    let forge = Forge::new(&site.authority);
    let poser = forge.issue(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = vec![SanType::DnsName("other.sluice".try_into().unwrap())];
    });
    let server = raw_server_for(&poser, &[site.authority.cert_pem()], JOIN_ALPN);
    let address = server.local_addr().unwrap().to_string();
    let dialer = JoinDialer::new(site.authority.fingerprint()).unwrap();
    let accept = async { soon(server.accept()).await.unwrap().await };
    let (host, _) = tokio::join!(soon(dialer.dial(&address)), accept);
    let error = host.unwrap_err();
    assert!(matches!(error, TransportError::Dial { .. }), "{error}");
}

#[tokio::test]
async fn a_member_of_another_cluster_under_the_same_authority_is_refused() {
    let site = Site::new();
    let other = sluice_common::id::ClusterId::new("c2").unwrap();
    let forge = Forge::new(&site.authority);
    let [ca, key] = [
        ("ca", site.authority.cert_pem()),
        ("key", site.authority.key_pem()),
    ]
    .map(|(name, text)| forge.write(name, &text));
    let second = Authority::load(&ca, &key).unwrap().with_cluster(other);
    let node = second.issue_node("gpu-7").unwrap();
    let dialer = sluice_transport::Dialer::new(&identity(&[&second], &node)).unwrap();
    let address = site.address();
    let (dialled, accepted) = tokio::join!(soon(dialer.dial(&address)), site.accepted());
    assert!(dialled.is_err());
    let text = chain(&accepted.unwrap_err());
    assert!(
        text.contains("of cluster `c2` and this is cluster `c1`"),
        "{text}"
    );
}

#[tokio::test]
async fn certificates_out_of_their_time_are_refused_with_a_word_about_clocks() {
    let site = Site::new();
    let forge = Forge::new(&site.authority);
    for (from, until, word) in [
        (2000, 2020, "has expired"),
        (2200, 2300, "is not valid before"),
    ] {
        let issued = forge.issue(|params| {
            params.not_before = rcgen::date_time_ymd(from, 1, 1);
            params.not_after = rcgen::date_time_ymd(until, 1, 1);
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            params.subject_alt_names = vec![SanType::URI("sluice:node:n".try_into().unwrap())];
        });
        let client = raw_client(&site.authority, Some(&issued), b"sluice/1");
        let (_, accepted) = site.raw_link(&client).await;
        let text = chain(&accepted.unwrap_err());
        assert!(
            text.contains("compare the clocks (`date`) of both hosts"),
            "{text}"
        );

        let files = files(forge.dir.path(), &[&site.authority], &issued);
        let text = chain(&Identity::load(&files).unwrap_err());
        assert!(
            text.contains(word) && text.contains("check this host's clock"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn a_host_an_hour_behind_takes_what_was_just_issued() {
    let authority = Authority::create("c1").unwrap();
    let issued = authority.issue_node("gpu-7").unwrap();
    let from = identity(&[&authority], &issued).validity().from;
    let ago = std::time::SystemTime::now().duration_since(from).unwrap();
    assert!(
        ago >= Duration::from_secs(3600) && ago < Duration::from_secs(3700),
        "{ago:?}"
    );
}

#[tokio::test]
async fn a_stranger_gets_few_streams_and_small_frames() {
    let site = Site::new();
    let (connection, coordinator) = rude(&site).await;
    let mut open = Vec::new();
    let greedy = async {
        for _ in 0..10_000 {
            open.push(connection.open_bi().await.unwrap());
        }
    };
    let refused = tokio::time::timeout(Duration::from_millis(300), greedy).await;
    assert!(refused.is_err());
    assert!(open.len() <= 8, "{} streams", open.len());

    // Announces 4 GiB - 1; the listener must not wait for them.
    let (send, _receive) = &mut open[0];
    send.write_all(&[0xff; 4]).await.unwrap();
    let (_writer, mut reader) = soon(coordinator.accept()).await.unwrap();
    let error = soon(reader.next::<String>()).await.unwrap_err();
    assert!(error.to_string().contains("4294967295"), "{error}");
}

#[tokio::test]
async fn random_bytes_and_half_a_frame_are_no_message() {
    let site = Site::new();
    let (connection, coordinator) = rude(&site).await;
    let (mut send, _receive) = connection.open_bi().await.unwrap();
    send.write_all(&[9, 0, 0, 0, 1]).await.unwrap();
    send.finish().unwrap();
    let (_writer, mut reader) = soon(coordinator.accept()).await.unwrap();
    let error = soon(reader.next::<String>()).await.unwrap_err();
    assert!(matches!(error, TransportError::TruncatedFrame), "{error}");

    let (connection, coordinator) = rude(&site).await;
    let (mut send, _receive) = connection.open_bi().await.unwrap();
    send.write_all(&[8, 0, 0, 0, 0xfd, 0x9e, 1, 0x7b, 0x55, 0xaa, 3, 0xfe])
        .await
        .unwrap();
    let (_writer, mut reader) = soon(coordinator.accept()).await.unwrap();
    let error = soon(reader.next::<sluice_common::join::JoinRequest>())
        .await
        .unwrap_err();
    assert!(matches!(error, TransportError::Codec(_)), "{error}");
}

#[tokio::test]
async fn a_listener_that_was_given_a_new_certificate_shows_it_and_keeps_its_links() {
    let old = Authority::create("c1").unwrap();
    let new = Authority::create("c1").unwrap();
    let coordinator = old.issue_coordinator().unwrap();
    let listener = Listener::bind(LOOPBACK, &identity(&[&old], &coordinator)).unwrap();
    let site = Site {
        authority: old,
        listener,
    };
    let link = site.link().await;
    let renewed = new.issue_coordinator().unwrap();
    site.listener.renew(&identity(&[&new], &renewed)).unwrap();
    let (mut ask, _answer) = link.agent.open().await.unwrap();
    ask.send("still here").await.unwrap();
    let (_writer, mut reader) = soon(link.coordinator.accept()).await.unwrap();
    assert_eq!(
        soon(reader.next::<String>()).await.unwrap().unwrap(),
        "still here"
    );

    let issued = new.issue_node("gpu-8").unwrap();
    let dialer = sluice_transport::Dialer::new(&identity(&[&new], &issued)).unwrap();
    let address = site.address();
    let (dialled, accepted) = tokio::join!(soon(dialer.dial(&address)), site.accepted());
    assert_eq!(dialled.unwrap().peer().to_string(), "the coordinator");
    assert_eq!(accepted.unwrap().peer().to_string(), "node gpu-8");
}
