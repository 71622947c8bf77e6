//! Calls answered before their body was read: the connection continues after it, or the answer announces its end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::*;

const PATIENCE: Duration = Duration::from_secs(20);

struct Connection(TcpStream);

impl Connection {
    fn to(harness: &Harness) -> Self {
        let url = harness.url("");
        let stream = TcpStream::connect(url.strip_prefix("http://").unwrap()).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    fn say(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
    }

    /// Reads the next answer; returns its head in lower case.
    fn answer(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.0.read_exact(&mut byte).expect("an answer");
            head.extend(byte);
        }
        let head = String::from_utf8(head).unwrap().to_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.parse().unwrap());
        self.0.read_exact(&mut vec![0; length]).unwrap();
        head
    }

    fn is_at_its_end(&mut self) -> bool {
        matches!(self.0.read(&mut [0; 64]), Ok(0) | Err(_))
    }
}

const HEALTH: &str = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn a_connection_goes_on_behind_a_small_body_that_nobody_wanted() {
    let harness = Harness::start();
    let mut connection = Connection::to(&harness);
    for line in [
        "POST /v1/nodes",
        "POST /v1/nothing",
        "GET /healthz",
        "PUT /v1/steps/a",
        "DELETE /v1/pools/none",
    ] {
        for (header, body) in [
            ("Content-Length: 2", "{}"),
            ("Transfer-Encoding: chunked", "2\r\n{}\r\n0\r\n\r\n"),
            ("Transfer-Encoding: chunked", "0\r\n\r\n"),
        ] {
            connection.say(&format!(
                "{line} HTTP/1.1\r\nHost: localhost\r\n{header}\r\n\r\n"
            ));
            connection.say(body);
            let first = connection.answer();
            assert!(!first.contains("connection: close"), "{line}: {first}");
            connection.say(HEALTH);
            let second = connection.answer();
            assert!(second.starts_with("http/1.1 200"), "{line}: {second}");
        }
    }
}

#[test]
fn where_it_does_not_go_on_the_answer_says_so() {
    let harness = Harness::start();
    for headers in [
        // The body never comes.
        "Content-Length: 2",
        // The body is too long to wait for.
        "Content-Length: 1000000",
        // The body comes only if it is asked for.
        "Content-Length: 2\r\nExpect: 100-continue",
    ] {
        let mut connection = Connection::to(&harness);
        connection.say(&format!(
            "POST /v1/nothing HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n"
        ));
        let answer = connection.answer();
        assert!(answer.starts_with("http/1.1 404"), "{headers}: {answer}");
        assert!(answer.contains("connection: close"), "{headers}: {answer}");
        assert!(connection.is_at_its_end(), "{headers}");
    }
}

#[test]
fn a_body_that_is_too_large_is_not_asked_for() {
    let harness = Harness::start();
    let mut connection = Connection::to(&harness);
    let headers = "Content-Length: 1000000000\r\nExpect: 100-continue";
    connection.say(&format!(
        "POST /v1/steps HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n\r\n"
    ));
    let answer = connection.answer();
    assert!(answer.starts_with("http/1.1 413"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
}
