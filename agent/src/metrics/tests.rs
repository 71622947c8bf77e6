//! Metrics of a server that answers as it likes.

use std::time::Instant;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::*;

/// Answers each connection with these bytes, and then keeps it open or closes it.
async fn server(answer: Vec<u8>, keeps_open: bool) -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            // Reads the request, so that closing does not reset the connection.
            let _request = stream.read(&mut [0; 1024]).await;
            let _gone = stream.write_all(&answer).await;
            if keeps_open {
                open.push(stream);
            }
        }
    });
    port
}

fn target(port: u16) -> MetricTarget {
    MetricTarget {
        attempt: "web-1.1".parse().unwrap(),
        name: "queue".parse().unwrap(),
        port,
        path: "/metrics".to_owned(),
    }
}

async fn value(answer: &[u8], keeps_open: bool) -> Result<u64, String> {
    let port = server(answer.to_vec(), keeps_open).await;
    let told = report(&target(port)).await.metric.unwrap();
    told.value
        .map_err(|why| why.replace(&port.to_string(), "P"))
}

fn answer(text: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    )
    .into_bytes()
}

#[tokio::test]
async fn the_series_of_a_replica_are_added() {
    let text = "# TYPE queue gauge\nqueue{a=\"1\"} 2\nqueue{a=\"2\"} 3.5\n";
    assert_eq!(value(&answer(text), true).await, Ok(5500));
    let plain = format!("HTTP/1.0 200 OK\r\n\r\n{text}");
    assert_eq!(value(plain.as_bytes(), false).await, Ok(5500));
    let long = format!("{}queue 1\n", "other{a=\"b\"} 1\n".repeat(20_000));
    assert_eq!(value(&answer(&long), true).await, Ok(1000));
}

#[tokio::test]
async fn what_a_replica_cannot_tell_is_unknown() {
    let large = "# x\n".repeat(300_000);
    let endless = format!("HTTP/1.0 200 OK\r\n\r\n{large}").into_bytes();
    let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nqueue 1\n".to_vec();
    for (answer, part) in [
        (
            answer("queue NaN\n"),
            "`/metrics` at port P: a series of it is NaN",
        ),
        (answer("queue 1e18\n"), "which is not a number from 0"),
        (answer("other 1\n"), "no such metric"),
        (answer("<html></html>"), "line 1 is not in the text format"),
        (answer(&large), "more than 1048576 bytes"),
        (endless, "more than 1048576 bytes"),
        (cut, "it ended early"),
        (
            b"HTTP/1.1 404 Not Found\r\n\r\n".to_vec(),
            "it answered 404",
        ),
        (
            b"HTTP/1.1 302 Found\r\nLocation: http://evil/\r\n\r\n".to_vec(),
            "it answered 302",
        ),
        (b"SSH-2.0-x\r\n\r\n".to_vec(), "does not answer in HTTP"),
        (vec![b'x'; 50_000], "does not answer in HTTP"),
        (vec![], "does not answer in HTTP"),
    ] {
        let why = value(&answer, false).await.unwrap_err();
        assert!(why.contains(part), "{part}: {why}");
    }
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let why = report(&target(port))
        .await
        .metric
        .unwrap()
        .value
        .unwrap_err();
    assert_eq!(why, format!("nothing listens at port {port}"));
}

#[tokio::test]
async fn one_that_hangs_delays_no_other_and_is_asked_once_at_a_time() {
    let (events, mut inbox) = mpsc::channel(4);
    let reader = MetricReader::new(events.downgrade());
    let hanging = target(server(b"HTTP/1.1 2".to_vec(), true).await);
    let fine = MetricTarget {
        attempt: "web-2.1".parse().unwrap(),
        ..target(server(answer("queue 4\n"), true).await)
    };
    let began = Instant::now();
    reader.begin(vec![hanging.clone(), fine]);
    reader.begin(vec![hanging]);
    let Some(Event::Usage(UsageEvent::Metrics(reports))) = inbox.recv().await else {
        panic!("no metrics");
    };
    assert!(began.elapsed() < READ_WITHIN * 2, "{:?}", began.elapsed());
    let values: Vec<_> = reports
        .into_iter()
        .map(|it| it.metric.unwrap().value)
        .collect();
    assert!(
        values[0].as_ref().unwrap_err().contains("within 2s"),
        "{values:?}"
    );
    assert_eq!(values[1], Ok(4000));
    drop(events);
    assert!(inbox.recv().await.is_none(), "the second was not begun");
}

#[test]
fn a_reason_is_remembered_until_it_changes_or_the_attempt_is_over() {
    let report = |value: Result<u64, &str>| UsageReport {
        metric: Some(MetricReading {
            name: "queue".parse().unwrap(),
            value: value.map_err(str::to_owned),
        }),
        ..UsageReport::empty("a.1".parse().unwrap())
    };
    let mut unknown = BTreeMap::new();
    tell(&[report(Err("x"))], &mut unknown);
    assert_eq!(unknown.len(), 1);
    tell(&[report(Ok(1))], &mut unknown);
    assert!(unknown.is_empty());
    tell(&[report(Err("y"))], &mut unknown);
    tell(&[], &mut unknown);
    assert!(unknown.is_empty());
}
