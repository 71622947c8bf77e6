//! Peers that are refused, and the errors at both ends.

use std::time::Duration;

use rcgen::{ExtendedKeyUsagePurpose, SanType};
use sluice_transport::{Authority, Dialer, Identity, IssuedCertificate, Listener, TransportError};

use crate::site::{Forge, LOOPBACK, Site, chain, files, identity, raw_client, raw_server, soon};

/// Dials and accepts at the same time, and returns the errors of both ends.
async fn both_say(site: &Site, dialer: &Dialer) -> (String, String) {
    let address = site.address();
    let (dialled, accepted) = tokio::join!(soon(dialer.dial(&address)), site.accepted());
    (chain(&dialled.unwrap_err()), chain(&accepted.unwrap_err()))
}

#[tokio::test]
async fn a_node_of_another_authority_is_refused() {
    let site = Site::new();
    let other = Authority::create("c2").unwrap();
    // Claims the same cluster, so that only the authority differs.
    let other = other.with_cluster(sluice_common::id::ClusterId::new("c1").unwrap());
    let issued = other.issue_node("gpu-7").unwrap();
    let dialer = Dialer::new(&identity(&[&other, &site.authority], &issued)).unwrap();
    let (agent, coordinator) = both_say(&site, &dialer).await;
    let said = "the other side refused: this side's certificate was issued by an authority that is not trusted";
    assert!(agent.contains(said), "{agent}");
    let said = "the other side's certificate was issued by an authority that is not trusted";
    assert!(coordinator.contains(said), "{coordinator}");
}

#[tokio::test]
async fn a_coordinator_of_another_authority_is_refused() {
    let site = Site::new();
    let other = Authority::create("c2").unwrap();
    let issued = other.issue_node("gpu-7").unwrap();
    let dialer = Dialer::new(&identity(&[&other], &issued)).unwrap();
    let (agent, coordinator) = both_say(&site, &dialer).await;
    assert!(agent.contains("cannot connect to 127.0.0.1:"), "{agent}");
    let said = "the other side's certificate was issued by an authority that is not trusted";
    assert!(agent.contains(said), "{agent}");
    let said = "refused: this side's certificate was issued by an authority that is not trusted";
    assert!(coordinator.contains(said), "{coordinator}");
}

#[tokio::test]
async fn a_client_without_a_certificate_is_refused() {
    let site = Site::new();
    let client = raw_client(&site.authority, None, b"sluice/1");
    let (outcome, accepted) = site.raw_link(&client).await;
    let error = accepted.unwrap_err();
    assert!(
        chain(&error).contains("no certificate"),
        "{}",
        chain(&error)
    );
    if let Ok(connection) = outcome {
        soon(connection.closed()).await;
    }
}

#[tokio::test]
async fn another_protocol_is_refused() {
    let site = Site::new();
    let node = site.authority.issue_node("gpu-7").unwrap();
    let client = raw_client(&site.authority, Some(&node), b"h3");
    let (outcome, accepted) = site.raw_link(&client).await;
    assert!(outcome.is_err());
    assert!(matches!(accepted, Err(TransportError::Handshake { .. })));
}

/// Error of an agent that dials a server with this certificate.
async fn dialled_into(authority: &Authority, certificate: &IssuedCertificate) -> String {
    let server = raw_server(certificate);
    let node = authority.issue_node("gpu-7").unwrap();
    let dialer = Dialer::new(&identity(&[authority], &node)).unwrap();
    let address = server.local_addr().unwrap().to_string();
    let accept = async { server.accept().await.unwrap().await.map(drop) };
    let (dialled, accepted) = tokio::join!(soon(dialer.dial(&address)), soon(accept));
    assert!(
        accepted.is_err(),
        "the server was taken for the coordinator"
    );
    chain(&dialled.unwrap_err())
}

#[tokio::test]
async fn a_node_that_poses_as_the_coordinator_is_refused() {
    let authority = Authority::create("c1").unwrap();
    let issued = authority.issue_node("evil").unwrap();
    let text = dialled_into(&authority, &issued).await;
    assert!(
        text.contains("certificate is not valid for this use"),
        "{text}"
    );
    assert!(text.contains("server authentication"), "{text}");
}

#[tokio::test]
async fn a_server_of_another_name_is_refused() {
    let authority = Authority::create("c1").unwrap();
    let issued = Forge::new(&authority).issue(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.subject_alt_names = vec![
            SanType::DnsName("localhost".try_into().unwrap()),
            SanType::IpAddress([127, 0, 0, 1].into()),
        ];
    });
    let text = dialled_into(&authority, &issued).await;
    assert!(text.contains("coordinator.sluice"), "{text}");
}

#[tokio::test]
async fn the_coordinators_certificate_does_not_make_a_node() {
    let site = Site::new();
    let issued = site.authority.issue_coordinator().unwrap();
    let client = raw_client(&site.authority, Some(&issued), b"sluice/1");
    let (outcome, accepted) = site.raw_link(&client).await;
    let text = chain(&accepted.unwrap_err());
    assert!(text.contains("the handshake with 127.0.0.1:"), "{text}");
    if let Ok(connection) = outcome {
        soon(connection.closed()).await;
    }
}

#[tokio::test]
async fn a_certificate_of_the_authority_that_names_no_node_is_refused_in_words() {
    let site = Site::new();
    let forge = Forge::new(&site.authority);
    let issued = forge.issue(|params| {
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.subject_alt_names = ["a", "b"]
            .map(|node| SanType::URI(format!("sluice:node:{node}").try_into().unwrap()))
            .to_vec();
    });
    let client = raw_client(&site.authority, Some(&issued), b"sluice/1");
    let (connection, accepted) = site.raw_link(&client).await;
    let error = accepted.unwrap_err();
    assert!(
        matches!(error, TransportError::Certificate { .. }),
        "{error}"
    );
    assert!(
        chain(&error).contains("names 2 members of a cluster"),
        "{}",
        chain(&error)
    );
    let told = soon(connection.unwrap().closed()).await.to_string();
    assert!(told.contains("names 2 members of a cluster"), "{told}");
}

#[tokio::test]
async fn an_address_without_meaning_is_refused_with_the_form() {
    let dialer = Site::new().dialer("gpu-7");
    for address in ["", "localhost", "localhost:no", "127.0.0.1:99999", ":7"] {
        let error = soon(dialer.dial(address)).await.unwrap_err();
        let text = error.to_string();
        assert!(text.contains("write HOST:PORT"), "{address}: {text}");
    }
    let error = soon(dialer.dial("127.0.0.1:0")).await.unwrap_err();
    assert!(chain(&error).contains("127.0.0.1:0"), "{}", chain(&error));
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let site = Site::new();
    let issued = site.authority.issue_coordinator().unwrap();
    let identity = identity(&[&site.authority], &issued);
    let addr = site.listener.local_addr();
    let text = chain(&Listener::bind(addr, &identity).unwrap_err());
    assert!(
        text.starts_with(&format!("cannot listen on {addr} (UDP): ")),
        "{text}"
    );
    assert!(text.contains("in use"), "{text}");
}

#[tokio::test]
async fn each_end_wants_its_own_certificate() {
    let authority = Authority::create("c1").unwrap();
    let node = identity(&[&authority], &authority.issue_node("gpu-7").unwrap());
    let coordinator = identity(&[&authority], &authority.issue_coordinator().unwrap());
    let text = Listener::bind(LOOPBACK, &node).unwrap_err().to_string();
    assert!(
        text.ends_with("is the certificate of node gpu-7: listening needs the coordinator's"),
        "{text}"
    );
    let text = Dialer::new(&coordinator).unwrap_err().to_string();
    assert!(
        text.ends_with("is the certificate of the coordinator: dialling needs a node's"),
        "{text}"
    );
}

#[test]
fn files_that_make_no_identity_are_refused_by_name() {
    let authority = Authority::create("c1").unwrap();
    let other = Authority::create("c2").unwrap();
    let forge = Forge::new(&authority);
    let good = files(
        forge.dir.path(),
        &[&authority],
        &authority.issue_node("n").unwrap(),
    );
    assert!(Identity::load(&good).is_ok());
    let stale = forge.issue(|params| {
        params.not_after = rcgen::date_time_ymd(2020, 1, 1);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.subject_alt_names = vec![SanType::URI("sluice:node:n".try_into().unwrap())];
    });
    let mut cases = vec![];
    let mut case = |change: &dyn Fn(&mut sluice_transport::TlsFiles), said: &'static str| {
        let mut files = good.clone();
        change(&mut files);
        cases.push((files, said));
    };
    case(
        &|f| f.ca = "/nonexistent/ca".into(),
        "cannot read /nonexistent/ca: No such file",
    );
    case(
        &|f| f.cert = f.key.clone(),
        "cert.key holds no certificate in PEM form",
    );
    case(
        &|f| f.key = forge.write("c", &authority.cert_pem()),
        "/c holds no private key in PEM form",
    );
    case(
        &|f| f.key = forge.write("k", &other.key_pem()),
        "/k is not the key of ",
    );
    case(
        &|f| f.ca = forge.write("o", &other.cert_pem()),
        "is not valid now under the authority in ",
    );
    case(
        &|f| f.ca = forge.write("o", &other.cert_pem()),
        "UnknownIssuer",
    );
    case(
        &|f| {
            f.ca = forge.write(
                "g",
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            )
        },
        "the authority's certificate in ",
    );
    case(
        &|f| f.ca = forge.write("e", ""),
        "/e holds no certificate in PEM form",
    );
    case(&|f| f.cert = good.ca.clone(), "is not the key of ");
    case(
        &|f| {
            f.cert = forge.write("s", &stale.cert_pem);
            f.key = forge.write("sk", &stale.key_pem);
        },
        "expired",
    );
    for (files, said) in cases {
        let text = chain(&Identity::load(&files).unwrap_err());
        assert!(text.contains(said), "{text}\nshould say: {said}");
    }
}

#[tokio::test]
async fn a_handshake_that_is_never_finished_holds_up_nobody() {
    let site = Site::new();
    let first = site.dialer("slow");
    let address = site.address();
    let slow = tokio::spawn(async move { first.dial(&address).await.map(drop) });
    let handshake = soon(site.listener.accept()).await.unwrap();
    let link = soon(site.link()).await;
    assert_eq!(link.coordinator.peer().to_string(), "node gpu-7");
    drop(handshake);
    let said = chain(&soon(slow).await.unwrap().unwrap_err());
    assert!(said.contains("refused"), "{said}");
    tokio::time::timeout(Duration::from_secs(5), site.link())
        .await
        .unwrap();
}
