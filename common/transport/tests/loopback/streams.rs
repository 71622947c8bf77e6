//! Streams between verified peers, and their ends.

use std::collections::BTreeMap;

use sluice_common::limit::MAX_FRAME_BYTES;
use sluice_transport::{
    Authority, Connection, Dialer, FrameReader, FrameWriter, Listener, Peer, TransportError,
};

use crate::site::{LOOPBACK, Link, Site, chain, identity, raw_client, soon};

/// A stream opened by the agent, after one message has passed: its writer, and its reader at the coordinator.
async fn one_way(link: &Link) -> (FrameWriter, FrameReader) {
    let (mut writer, _) = link.agent.open().await.unwrap();
    writer.send(&0u32).await.unwrap();
    let (_, mut reader) = soon(link.coordinator.accept()).await.unwrap();
    assert_eq!(soon(reader.next::<u32>()).await.unwrap(), Some(0));
    (writer, reader)
}

#[tokio::test]
async fn both_ends_know_who_the_other_is() {
    let site = Site::new();
    let link = site.link().await;
    assert_eq!(*link.coordinator.peer(), Peer::Node("gpu-7".into()));
    assert_eq!(*link.agent.peer(), Peer::Coordinator);
    assert_eq!(link.agent.remote_addr(), site.listener.local_addr());
    assert!(link.coordinator.remote_addr().ip().is_loopback());
}

#[tokio::test]
async fn a_host_name_is_resolved() {
    let site = Site::new();
    let dialer = site.dialer("gpu-7");
    let address = format!("localhost:{}", site.listener.local_addr().port());
    let (agent, coordinator) = tokio::join!(soon(dialer.dial(&address)), site.accepted());
    assert_eq!(*agent.unwrap().peer(), Peer::Coordinator);
    coordinator.unwrap();
}

#[tokio::test]
async fn messages_pass_both_ways_on_streams_of_both_sides() {
    let site = Site::new();
    let link = site.link().await;
    async fn ask_and_answer(asker: &Connection, other: &Connection) {
        let (mut writer, mut reader) = asker.open().await.unwrap();
        writer.send("how are you").await.unwrap();
        let (mut answer, mut asked) = soon(other.accept()).await.unwrap();
        let said: String = soon(asked.next()).await.unwrap().unwrap();
        answer.send(&BTreeMap::from([(said, 7u64)])).await.unwrap();
        answer.finish();
        let said: BTreeMap<String, u64> = soon(reader.next()).await.unwrap().unwrap();
        assert_eq!(said["how are you"], 7);
        assert_eq!(soon(reader.next::<u8>()).await.unwrap(), None);
    }
    ask_and_answer(&link.agent, &link.coordinator).await;
    ask_and_answer(&link.coordinator, &link.agent).await;
}

#[tokio::test]
async fn ten_thousand_messages_arrive_in_order() {
    let site = Site::new();
    let link = site.link().await;
    let (mut writer, mut reader) = one_way(&link).await;
    let sending = tokio::spawn(async move {
        for number in 0..10_000u32 {
            let text = "x".repeat(number as usize % 500);
            writer.send(&(number, text)).await.unwrap();
        }
        writer.finish();
        writer.delivered().await.unwrap();
    });
    for expected in 0..10_000u32 {
        let (number, text): (u32, String) = soon(reader.next()).await.unwrap().unwrap();
        assert_eq!((number, text.len()), (expected, expected as usize % 500));
    }
    assert_eq!(soon(reader.next::<u8>()).await.unwrap(), None);
    soon(sending).await.unwrap();
}

#[tokio::test]
async fn the_largest_message_passes_and_a_larger_one_is_not_sent() {
    let site = Site::new();
    let link = site.link().await;
    let (mut writer, mut reader) = one_way(&link).await;
    let largest = "x".repeat(MAX_FRAME_BYTES - 8);
    let error = writer.send(&format!("{largest}x")).await.unwrap_err();
    assert!(
        error.to_string().contains("the maximum of 4194304 bytes"),
        "{error}"
    );
    let sent = largest.clone();
    let sending = tokio::spawn(async move {
        writer.send(&sent).await.unwrap();
        writer.finish();
    });
    let arrived: String = soon(reader.next()).await.unwrap().unwrap();
    assert!(arrived == largest);
    soon(sending).await.unwrap();
}

#[tokio::test]
async fn an_unlawful_length_is_refused_at_once() {
    let site = Site::new();
    let link = site.link().await;
    let (mut writer, mut reader) = one_way(&link).await;
    let announced = MAX_FRAME_BYTES as u32 + 1;
    writer.send_bytes(&announced.to_le_bytes()).await.unwrap();
    let error = soon(reader.next::<u32>()).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "a frame of 4194305 bytes is announced: the maximum is 4194304"
    );
}

#[tokio::test]
async fn half_a_message_is_no_end() {
    let site = Site::new();
    let link = site.link().await;
    for cut in [1, 4, 5] {
        let (mut writer, mut reader) = one_way(&link).await;
        let whole = [2, 0, 0, 0, 9, 9];
        writer.send_bytes(&whole[..cut]).await.unwrap();
        writer.finish();
        let error = soon(reader.next::<u16>()).await.unwrap_err();
        assert!(
            matches!(error, TransportError::TruncatedFrame),
            "{cut}: {error}"
        );
    }
}

#[tokio::test]
async fn what_is_no_message_is_refused_and_says_what_was_expected() {
    let site = Site::new();
    let link = site.link().await;
    let (mut writer, mut reader) = one_way(&link).await;
    writer.send(&0xffffu16).await.unwrap();
    let error = soon(reader.next::<bool>()).await.unwrap_err();
    assert!(
        error.to_string().contains("not a message `bool`"),
        "{error}"
    );
}

#[tokio::test]
async fn a_dropped_writer_is_not_taken_for_an_end() {
    let site = Site::new();
    let link = site.link().await;
    let (mut writer, mut reader) = one_way(&link).await;
    writer.send_bytes(b"half of an out").await.unwrap();
    drop(writer);
    let mut outcome = soon(reader.read_bytes(100)).await;
    while let Ok(Some(_)) = outcome {
        outcome = soon(reader.read_bytes(100)).await;
    }
    assert!(
        matches!(outcome, Err(TransportError::StreamReset)),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn plain_bytes_follow_messages_without_loss() {
    let site = Site::new();
    let link = site.link().await;
    let (mut writer, mut reader) = one_way(&link).await;
    let sending = tokio::spawn(async move {
        writer.send("plain bytes follow").await.unwrap();
        for part in 0..200u8 {
            writer.send_bytes(&[part; 5000]).await.unwrap();
        }
        writer.finish();
    });
    let said: String = soon(reader.next()).await.unwrap().unwrap();
    assert_eq!(said, "plain bytes follow");
    let mut all = Vec::new();
    while let Some(bytes) = soon(reader.read_bytes(1500)).await.unwrap() {
        assert!((1..=1500).contains(&bytes.len()));
        all.extend(bytes);
    }
    assert_eq!(all.len(), 1_000_000);
    assert!(
        all.chunks(5000)
            .zip(0..)
            .all(|(part, n)| *part == [n; 5000])
    );
    soon(sending).await.unwrap();
}

#[tokio::test]
async fn reading_can_be_interrupted_anywhere() {
    let site = Site::new();
    let link = site.link().await;
    let (mut writer, mut reader) = one_way(&link).await;
    let bytes = sluice_codec::frame(&("first", 2u64), MAX_FRAME_BYTES).unwrap();
    for byte in &bytes[..bytes.len() - 1] {
        writer.send_bytes(&[*byte]).await.unwrap();
        tokio::select! {
            biased;
            early = reader.next::<(String, u64)>() => panic!("{early:?}"),
            () = tokio::task::yield_now() => {}
        }
    }
    writer.send_bytes(&bytes[bytes.len() - 1..]).await.unwrap();
    let whole: (String, u64) = soon(reader.next()).await.unwrap().unwrap();
    assert_eq!(whole, ("first".into(), 2));
}

#[tokio::test]
async fn a_sending_that_was_given_up_ends_the_stream_and_not_the_link() {
    let site = Site::new();
    let link = site.link().await;
    let (mut writer, mut reader) = one_way(&link).await;
    let much = vec![0u8; 64 * 1024 * 1024];
    tokio::select! {
        biased;
        done = writer.send_bytes(&much) => panic!("nobody reads it: {done:?}"),
        () = tokio::task::yield_now() => {}
    }
    let error = soon(writer.send(&7u8)).await.unwrap_err();
    assert!(matches!(error, TransportError::StreamFinished), "{error}");
    writer.finish();
    drop(writer);
    let mut outcome = soon(reader.read_bytes(1 << 20)).await;
    while let Ok(Some(_)) = outcome {
        outcome = soon(reader.read_bytes(1 << 20)).await;
    }
    assert!(
        matches!(outcome, Err(TransportError::StreamReset)),
        "{outcome:?}"
    );
    one_way(&link).await;
}

#[tokio::test]
async fn a_sender_learns_that_nobody_reads() {
    let site = Site::new();
    let link = site.link().await;
    let (mut writer, reader) = one_way(&link).await;
    drop(reader);
    soon(writer.reader_gone()).await;
    let error = soon(async {
        loop {
            if let Err(error) = writer.send(&7u8).await {
                return error;
            }
        }
    })
    .await;
    assert!(matches!(error, TransportError::ReaderGone), "{error}");
}

#[tokio::test]
async fn unread_output_does_not_hold_up_other_streams() {
    let site = Site::new();
    let link = site.link().await;
    let mut stuck = Vec::new();
    for _ in 0..6 {
        let (mut writer, reader) = one_way(&link).await;
        let flood = tokio::spawn(async move { writer.send_bytes(&vec![0; 8 << 20]).await });
        stuck.push((reader, flood));
    }
    let (mut writer, mut reader) = one_way(&link).await;
    for number in 0..100u32 {
        soon(writer.send(&number)).await.unwrap();
        assert_eq!(soon(reader.next::<u32>()).await.unwrap(), Some(number));
    }
    assert!(stuck.iter().all(|(_, flood)| !flood.is_finished()));
}

#[tokio::test]
async fn a_close_tells_why_and_delivered_comes_first() {
    let site = Site::new();
    let link = site.link().await;
    let (mut to_agent, _) = link.coordinator.open().await.unwrap();
    to_agent.send("you are not let in").await.unwrap();
    to_agent.finish();
    let agent = link.agent.clone();
    let listening = tokio::spawn(async move {
        let (_writer, mut reader) = agent.accept().await.unwrap();
        let said: String = reader.next().await.unwrap().unwrap();
        (said, agent.closed().await)
    });
    soon(to_agent.delivered()).await.unwrap();
    link.coordinator.close("the node is too old\u{1b}[2J");
    let (said, why) = soon(listening).await.unwrap();
    assert_eq!(said, "you are not let in");
    assert_eq!(why, "the other side closed it: the node is too old?[2J");
    assert_eq!(soon(link.coordinator.closed()).await, "it was closed here");
    let error = soon(link.agent.open()).await.unwrap_err();
    assert_eq!(
        chain(&error),
        "the link is lost: the other side closed it: the node is too old?[2J"
    );
}

/// Old links must end before the idle limit.
#[test]
fn a_coordinator_that_died_and_came_back_ends_its_old_links_with_the_next_word() {
    let agent_side = tokio::runtime::Runtime::new().unwrap();
    let first_life = tokio::runtime::Runtime::new().unwrap();
    let second_life = tokio::runtime::Runtime::new().unwrap();
    let authority = Authority::create("c1").unwrap();
    let coordinator = identity(&[&authority], &authority.issue_coordinator().unwrap());
    let node = identity(&[&authority], &authority.issue_node("gpu-7").unwrap());
    let listening = || async { Listener::bind(LOOPBACK, &coordinator).unwrap() };
    let listener = first_life.block_on(listening());
    let address = listener.local_addr();
    let _accepting = first_life.spawn(async move {
        let handshake = listener.accept().await.unwrap();
        let _link = handshake.finish().await.unwrap();
        std::future::pending::<()>().await;
    });
    let link = agent_side.block_on(async {
        let dialer = Dialer::new(&node).unwrap();
        soon(dialer.dial(&address.to_string())).await.unwrap()
    });
    // Stops without telling the agent, as a crash would.
    first_life.shutdown_timeout(std::time::Duration::from_secs(10));
    let _listener = second_life.block_on(async { Listener::bind(address, &coordinator).unwrap() });
    let why = agent_side.block_on(async {
        // A packet of the transport's own, such as an acknowledgement, may come before ours.
        if let Ok((mut writer, _reader)) = link.open().await {
            let _outcome = writer.send(&7_u64).await;
        }
        soon(link.closed()).await
    });
    assert!(why.contains("it may have restarted"), "{why}");
}

#[tokio::test]
async fn a_closed_listener_ends_links_and_takes_no_more() {
    let site = Site::new();
    let link = site.link().await;
    site.listener.close();
    let why = soon(link.agent.closed()).await;
    assert_eq!(why, "the other side closed it: the coordinator shuts down");
    assert!(soon(site.listener.accept()).await.is_none());
    soon(site.listener.wait_idle()).await;
}

#[tokio::test]
async fn a_thousand_outputs_of_one_host_can_be_followed_at_once() {
    let site = Site::new();
    let link = site.link().await;
    let mut followed = Vec::new();
    for number in 0..1000_u32 {
        let (mut writer, reader) = soon(link.coordinator.open()).await.unwrap();
        writer.send(&number).await.unwrap();
        let (_, mut asked) = soon(link.agent.accept()).await.unwrap();
        assert_eq!(soon(asked.next::<u32>()).await.unwrap(), Some(number));
        followed.push((writer, reader, asked));
    }
}

#[tokio::test]
async fn an_agent_may_not_open_streams_without_end() {
    let site = Site::new();
    let node = site.authority.issue_node("greedy").unwrap();
    let client = raw_client(&site.authority, Some(&node), b"sluice/1");
    let (connection, accepted) = site.raw_link(&client).await;
    let (connection, _accepted) = (connection.unwrap(), accepted.unwrap());
    let mut open = Vec::new();
    let opened = async {
        loop {
            open.push(connection.open_bi().await.unwrap());
        }
    };
    tokio::select! {
        biased;
        () = opened => {}
        // Credit for more streams would come with the acknowledgement of this one.
        () = async { soon(connection.accept_uni()).await.unwrap(); } => {}
    }
    assert_eq!(open.len(), 8);
}
