//! Sends requests over kept-alive connections, one thread each. Reads only the end of each answer, because
//! the sender shares the processors with the service.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::served::Usage;
use crate::status::mib;

pub(crate) const HEADER: &str = "storm              | of       |  calls/s | p50 ms | p99 ms | max ms | cpu us/call | MiB before  after | log lines | answers";

/// When a storm is over.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Until {
    Calls(usize),
    Over(Duration),
}

/// The result of a storm.
#[derive(Debug)]
pub(crate) struct Storm {
    pub(crate) calls: usize,
    pub(crate) used: Usage,
    seconds: f64,
    /// Seconds, in order.
    latencies: Vec<f64>,
    statuses: BTreeMap<u16, usize>,
}

/// Sends the requests in turn, distributed over the connections.
pub(crate) fn send(address: &str, requests: &[Vec<u8>], connections: usize, until: Until) -> Storm {
    let began = Instant::now();
    let answers: Vec<(u16, Duration)> = std::thread::scope(|scope| {
        let one = |connection: usize| {
            let turns = (connection..)
                .step_by(connections)
                .take_while(move |turn| match until {
                    Until::Calls(calls) => *turn < calls,
                    Until::Over(time) => began.elapsed() < time,
                });
            let of_turn = move |turn: usize| requests.get(turn % requests.len());
            scope.spawn(move || exchange(address, turns.filter_map(of_turn)))
        };
        let threads: Vec<_> = (0..connections).map(one).collect();
        let answers = threads
            .into_iter()
            .map(|thread| thread.join().expect("a sender"));
        answers.flatten().collect()
    });
    let seconds = began.elapsed().as_secs_f64();
    let mut statuses = BTreeMap::new();
    for (status, _) in &answers {
        *statuses.entry(*status).or_default() += 1;
    }
    let mut latencies: Vec<f64> = answers.iter().map(|(_, took)| took.as_secs_f64()).collect();
    latencies.sort_by(f64::total_cmp);
    Storm {
        calls: answers.len(),
        used: Usage::default(),
        seconds,
        latencies,
        statuses,
    }
}

fn exchange<'a>(
    address: &str,
    requests: impl Iterator<Item = &'a Vec<u8>>,
) -> Vec<(u16, Duration)> {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_nodelay(true).expect("a socket");
    let mut buffer = vec![0; 64 << 10];
    let mut answers = Vec::new();
    for request in requests {
        let began = Instant::now();
        stream.write_all(request).expect("a request sent");
        let status = answer(&mut stream, &mut buffer);
        answers.push((status, began.elapsed()));
    }
    answers
}

/// Reads one answer; returns its status.
fn answer(stream: &mut TcpStream, buffer: &mut [u8]) -> u16 {
    let mut filled = 0;
    let mut end = None;
    loop {
        let rest = buffer.get_mut(filled..).unwrap_or_default();
        let read = stream.read(rest).expect("an answer");
        assert_ne!(read, 0, "an answer that fits, and a connection that stays");
        filled += read;
        let text = buffer.get(..filled).unwrap_or_default();
        end = end.or_else(|| length(text));
        if end.is_some_and(|end| filled >= end) {
            let status = text.get(9..12).and_then(|it| std::str::from_utf8(it).ok());
            return status.and_then(|it| it.parse().ok()).expect("a status");
        }
    }
}

/// Returns the length of an answer, if its head is complete.
fn length(text: &[u8]) -> Option<usize> {
    let head_end = text.windows(4).position(|it| it == b"\r\n\r\n")?;
    let head = std::str::from_utf8(text.get(..head_end)?).expect("a head in plain text");
    let mut lines = head.split("\r\n").filter_map(|line| line.split_once(": "));
    let field = lines.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let body: usize = field
        .and_then(|(_, value)| value.parse().ok())
        .expect("a length");
    Some(head_end + 4 + body)
}

impl Storm {
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "figures for people"
    )]
    fn millis(&self, share: f64) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let index = (last as f64 * share) as usize;
        self.latencies
            .get(index)
            .map_or(f64::NAN, |seconds| seconds * 1e3)
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn each_second(&self) -> f64 {
        self.calls as f64 / self.seconds
    }

    #[expect(clippy::cast_precision_loss, reason = "figures for people")]
    fn processor_micros(&self) -> f64 {
        self.used.processor.as_secs_f64() * 1e6 / self.calls as f64
    }

    /// Compares it with another storm of the same requests.
    pub(crate) fn beside(&self, other: &Self) -> String {
        let ratio = |of: &dyn Fn(&Self) -> f64| of(self) / of(other);
        format!(
            "{:>8.2} | {:>6.1} | {:>6.1} | {:>6.1} | {:>11.1} |",
            ratio(&Self::each_second),
            ratio(&|it| it.millis(0.5)),
            ratio(&|it| it.millis(0.99)),
            ratio(&|it| it.millis(1.0)),
            ratio(&Self::processor_micros),
        )
    }
}

impl fmt::Display for Storm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:>8.0} | {:>6.2} | {:>6.2} | {:>6.1} | {:>11.1} | {:>10.1} {:>6.1} | {:>9} | {:?}",
            self.each_second(),
            self.millis(0.5),
            self.millis(0.99),
            self.millis(1.0),
            self.processor_micros(),
            mib(self.used.memory_before),
            mib(self.used.memory_after),
            self.used.log_lines,
            self.statuses,
        )
    }
}
