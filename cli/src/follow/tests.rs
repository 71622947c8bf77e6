//! Following against a server that breaks the link: no byte is lost or repeated.

use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::ops::ControlFlow;
use std::thread::JoinHandle;

use sluice_common::wire::LogStream;

use super::{FollowEnd, FollowError, FollowEvent, OutputSource, follow};
use crate::client::Client;
use crate::context::{Context, ContextFile};

/// The server's reaction to one request.
#[derive(Clone, Copy)]
enum ServerReply {
    /// Serves `bytes` from the requested offset (less `early`, like a server that rounds down), at most `at_most` of
    /// them, in chunks, and then ends the body or breaks the link.
    Serve {
        early: usize,
        at_most: usize,
        complete: bool,
    },
    /// Begins later than requested, because the oldest bytes were dropped.
    DropBefore(usize),
    /// Answers with this status.
    Status(u16),
    /// Hangs up without an answer.
    HangUp,
}

/// Serves one request for each reply, then stops listening. Returns the received queries.
fn server(output: Vec<u8>, plays: Vec<ServerReply>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let serve = move || {
        let mut queries = Vec::new();
        for play in plays {
            let (stream, _) = listener.accept().unwrap();
            queries.push(answer(&stream, &output, play));
        }
        queries
    };
    (address, std::thread::spawn(serve))
}

fn answer(stream: &TcpStream, output: &[u8], play: ServerReply) -> String {
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap);
    let request = lines.next().unwrap();
    while lines.next().is_some_and(|line| !line.is_empty()) {}
    let query = request.split(' ').nth(1).unwrap().to_owned();
    let asked = query
        .split(['?', '&'])
        .find_map(|pair| pair.strip_prefix("offset="));
    let asked: usize = asked.unwrap().parse().unwrap();
    match play {
        ServerReply::HangUp => {}
        ServerReply::Status(status) => {
            let body = r#"{"error":{"code":"x","message":"not now"}}"#;
            let head = format!(
                "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}",
                body.len()
            );
            (&*stream)
                .write_all(format!("{head}\r\n\r\n{body}").as_bytes())
                .unwrap();
        }
        ServerReply::Serve {
            early,
            at_most,
            complete,
        } => {
            let from = asked.saturating_sub(early);
            let to = output.len().min(from.saturating_add(at_most));
            send_chunked(stream, from, &output[from..to], complete);
        }
        ServerReply::DropBefore(from) => send_chunked(stream, from, &output[from..], true),
    }
    query
}

fn send_chunked(mut stream: &TcpStream, from: usize, bytes: &[u8], complete: bool) {
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ntransfer-encoding: chunked";
    let mut text = format!("{head}\r\nsluice-log-offset: {from}\r\n\r\n").into_bytes();
    for chunk in bytes.chunks(1000) {
        text.extend(format!("{:x}\r\n", chunk.len()).bytes());
        text.extend(chunk);
        text.extend(b"\r\n");
    }
    if complete {
        text.extend(b"0\r\n\r\n");
    }
    if let Err(error) = stream.write_all(&text) {
        // The reader may break it off before the end.
        let gone = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
        assert!(gone.contains(&error.kind()), "{error}");
    }
}

fn source(http: String) -> OutputSource {
    OutputSource {
        client: Client::new(Context {
            path: "/x".into(),
            file: ContextFile {
                http,
                ..ContextFile::default()
            },
        })
        .unwrap(),
        step: "s".into(),
        since: None,
        timestamps: false,
        continues_line: false,
        attempt: 2,
        rank: 1,
        stream: LogStream::Stderr,
        follow: true,
    }
}

/// Returns arbitrary bytes without a period that could hide a repetition.
fn binary(len: u32) -> Vec<u8> {
    (0..len)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect()
}

const WHOLE: ServerReply = ServerReply::Serve {
    early: 0,
    at_most: usize::MAX,
    complete: true,
};

#[test]
fn a_link_that_breaks_everywhere_loses_and_repeats_nothing() {
    let output = binary(20_000);
    let plays = vec![
        ServerReply::Serve {
            early: 0,
            at_most: 4321,
            complete: false,
        },
        ServerReply::HangUp,
        ServerReply::Status(503),
        ServerReply::Serve {
            early: 0,
            at_most: 0,
            complete: false,
        },
        ServerReply::Serve {
            early: 1234,
            at_most: 9000,
            complete: false,
        },
        ServerReply::Serve {
            early: 100,
            at_most: 50,
            complete: false,
        },
        WHOLE,
    ];
    let (http, server) = server(output.clone(), plays);
    let mut got = Vec::new();
    let mut breaks = 0;
    let end = follow(&source(http), 0, &mut got, &mut |news| {
        breaks += usize::from(matches!(news, FollowEvent::Broken(..)));
        assert!(breaks < 10, "the server has gone: {news:?}");
        ControlFlow::Continue(())
    });
    assert_eq!(end.unwrap(), FollowEnd::Complete(20_000));
    assert!(
        got == output,
        "{} bytes came, 20000 were written",
        got.len()
    );
    assert_eq!(breaks, 6);
    let queries = server.join().unwrap();
    assert_eq!(
        queries[0],
        "/v1/steps/s/logs?follow=true&stream=stderr&offset=0&attempt=2&rank=1"
    );
    assert!(queries[1].contains("offset=4321"), "{}", queries[1]);
}

#[test]
fn an_offset_begins_where_it_says_and_a_gap_is_told() {
    let output = binary(500);
    let (http, server) = server(output.clone(), vec![ServerReply::DropBefore(300)]);
    let mut got = Vec::new();
    let mut gap = 0;
    let end = follow(&source(http), 100, &mut got, &mut |news| {
        if let FollowEvent::Gap(bytes) = news {
            gap = bytes;
        }
        ControlFlow::Continue(())
    });
    assert_eq!((end.unwrap(), gap), (FollowEnd::Complete(500), 200));
    assert_eq!(got, output[300..]);
    server.join().unwrap();
}

#[test]
fn who_breaks_it_off_gets_no_byte_more() {
    let (http, server) = server(binary(500), vec![WHOLE]);
    let mut got = Vec::new();
    let end = follow(&source(http), 0, &mut got, &mut |_| ControlFlow::Break(()));
    assert_eq!(end.unwrap(), FollowEnd::Stopped(0));
    assert!(got.is_empty());
    server.join().unwrap();
}

#[test]
fn a_refusal_that_does_not_pass_ends_it() {
    let (http, server) = server(Vec::new(), vec![ServerReply::Status(404)]);
    let end = follow(&source(http), 0, &mut Vec::new(), &mut |_| {
        ControlFlow::Continue(())
    });
    let Err(FollowError::Api(error)) = end else {
        panic!("{end:?}")
    };
    assert_eq!(
        (error.status(), error.to_string()),
        (Some(404), "not now".to_owned())
    );
    server.join().unwrap();
}

#[test]
fn a_sink_that_fails_ends_it() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (http, server) = server(binary(10), vec![WHOLE]);
    let end = follow(&source(http), 0, &mut Closed, &mut |_| {
        ControlFlow::Continue(())
    });
    assert!(matches!(end, Err(FollowError::Sink(_))), "{end:?}");
    server.join().unwrap();
}

#[test]
fn times_do_not_count_and_a_line_that_was_cut_gets_no_second_one() {
    // Each answer begins with a time, as the API promises.
    let answers = [
        (
            0,
            "2026-12-01T08:00:00Z one\n2026-12-01T08:00:01Z tw",
            false,
        ),
        (6, "2026-12-01T08:00:01Z o\n- three\n", true),
    ];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let http = listener.local_addr().unwrap().to_string();
    let server = std::thread::spawn(move || {
        answers.map(|(from, text, is_complete)| {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(&stream).lines().map(Result::unwrap);
            let request = lines.next().unwrap();
            while lines.next().is_some_and(|line| !line.is_empty()) {}
            send_chunked(&stream, from, text.as_bytes(), is_complete);
            request
        })
    });
    let timed = OutputSource {
        since: Some("10m".to_owned()),
        timestamps: true,
        ..source(http)
    };
    let (mut got, mut untimed) = (Vec::new(), 0);
    let end = follow(&timed, 0, &mut got, &mut |news| {
        untimed += usize::from(matches!(news, FollowEvent::NoTime));
        ControlFlow::Continue(())
    });
    assert_eq!(end.unwrap(), FollowEnd::Complete(14));
    let expected = "2026-12-01T08:00:00Z one\n2026-12-01T08:00:01Z two\n- three\n";
    assert_eq!(String::from_utf8(got).unwrap(), expected);
    assert_eq!(untimed, 1);
    let [first, second] = server.join().unwrap();
    let wanted = "follow=true&since=10m&timestamps=true&";
    assert!(first.contains(wanted), "{first}");
    // Where output since a time begins was settled by the first answer.
    assert!(second.contains("follow=true&timestamps=true&"), "{second}");
    assert!(second.contains("&offset=6&"), "{second}");
}
