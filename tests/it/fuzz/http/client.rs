//! A client that sends any bytes and reads what comes.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Instant;

use super::requests::{Ending, Input};
use crate::support::wait::PATIENCE;

/// Silent connections of one client.
const SILENT_MAX: usize = 16;
/// Inputs that are shown if one fails.
const SHOWN: usize = 4;
/// How much of each is shown.
const SHOWN_BYTES: usize = 4 << 10;

/// An answer as it came.
pub(super) struct Answer {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let body = &self.body[..self.body.len().min(SHOWN_BYTES)];
        let (status, headers) = (self.status, &self.headers);
        write!(f, "{status} {headers:?} {}", body.escape_ascii())
    }
}

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(it, _)| it == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Events go on for minutes; a client that has them reads no more.
    fn is_endless(&self) -> bool {
        self.header("content-type") == Some("text/event-stream")
    }
}

/// A connection that is kept as long as it lasts.
pub(super) struct Client<'a> {
    address: &'a str,
    connection: Option<BufReader<TcpStream>>,
    silent: VecDeque<TcpStream>,
    recent: VecDeque<Vec<u8>>,
}

impl<'a> Client<'a> {
    pub(super) fn new(address: &'a str) -> Self {
        Self {
            address,
            connection: None,
            silent: VecDeque::new(),
            recent: VecDeque::new(),
        }
    }

    /// Sends an input and returns the answers that came before the end.
    ///
    /// # Panics
    /// If the service neither answers nor closes in time, or answers with what is not HTTP.
    pub(super) fn send(&mut self, input: &Input) -> Vec<Answer> {
        self.recent.truncate(SHOWN - 1);
        self.recent.push_front(input.bytes.clone());
        match input.ending {
            Ending::Keep => self.keep(input),
            Ending::HalfClose => {
                let stream = self.take();
                let _closed = stream.get_ref().write_all(&input.bytes);
                let _closed = stream.get_ref().shutdown(Shutdown::Write);
                self.read(stream, &input.heads, usize::MAX).0
            }
            Ending::Close => {
                let _closed = self.take().get_ref().write_all(&input.bytes);
                Vec::new()
            }
            Ending::Silence => {
                let stream = self.connect();
                let _closed = (&stream).write_all(&input.bytes);
                self.silent.push_back(stream);
                if self.silent.len() > SILENT_MAX {
                    self.silence_ends();
                }
                Vec::new()
            }
        }
    }

    /// Reads the oldest silent connection to its end.
    fn silence_ends(&mut self) {
        let Some(mut stream) = self.silent.pop_front() else {
            return;
        };
        let began = Instant::now();
        match io::copy(&mut stream, &mut io::sink()) {
            Err(error) if is_timeout(&error) => {
                self.fail(&format!("open after {:?}", began.elapsed()))
            }
            Ok(_) | Err(_) => {}
        }
    }

    /// Waits until the service has closed all silent connections.
    pub(super) fn end(mut self) {
        while !self.silent.is_empty() {
            self.silence_ends();
        }
    }

    pub(super) fn fail(&self, why: &str) -> ! {
        let recent = self.recent.iter().map(|bytes| {
            bytes[..bytes.len().min(SHOWN_BYTES)]
                .escape_ascii()
                .to_string()
        });
        let recent: Vec<String> = recent.collect();
        panic!(
            "{why}; the last inputs, newest first:\n{}",
            recent.join("\n\n")
        );
    }

    fn keep(&mut self, input: &Input) -> Vec<Answer> {
        let stream = self.take();
        let sent = stream.get_ref().write_all(&input.bytes);
        let (answers, stream) = self.read(stream, &input.heads, input.heads.len());
        let closes = answers.iter().any(|it| {
            it.header("connection")
                .is_some_and(|it| it.contains("close"))
        });
        if sent.is_ok() && !closes {
            self.connection = stream;
        }
        answers
    }

    fn take(&mut self) -> BufReader<TcpStream> {
        let kept = self.connection.take();
        kept.unwrap_or_else(|| BufReader::new(self.connect()))
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address)
            .unwrap_or_else(|error| self.fail(&format!("no connection: {error}")));
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Reads answers until so many came or the connection is closed; then there is no stream left.
    fn read(
        &self,
        mut stream: BufReader<TcpStream>,
        heads: &[bool],
        most: usize,
    ) -> (Vec<Answer>, Option<BufReader<TcpStream>>) {
        let mut answers = Vec::new();
        while answers.len() < most {
            let is_head = heads.get(answers.len()).is_some_and(|is_head| *is_head);
            // Which answer belongs to a changed `HEAD` is not known: the rest is only read to its end.
            if most == usize::MAX && heads.contains(&true) {
                let read = io::copy(&mut stream, &mut io::sink());
                self.ended(read.err());
                return (answers, None);
            }
            match answer(&mut stream, is_head) {
                Ok(Some(answer)) => {
                    let is_endless = answer.is_endless();
                    answers.push(answer);
                    if is_endless {
                        return (answers, None);
                    }
                }
                Ok(None) => return (answers, None),
                Err(error) => {
                    self.ended(Some(error));
                    return (answers, None);
                }
            }
        }
        (answers, Some(stream))
    }

    /// A reset is an end; a timeout and bytes that are no answer are failures.
    fn ended(&self, error: Option<io::Error>) {
        if let Some(error) = error
            && (is_timeout(&error) || error.kind() == io::ErrorKind::InvalidData)
        {
            self.fail(&error.to_string());
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut
    )
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

fn text_line(stream: &mut impl BufRead) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    if stream.read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    let Some(line) = line.strip_suffix(b"\r\n") else {
        return Err(io::ErrorKind::UnexpectedEof.into());
    };
    String::from_utf8(line.to_vec())
        .map(Some)
        .map_err(|error| invalid(&error.to_string()))
}

/// Reads one answer; `None` at the end.
fn answer(stream: &mut impl BufRead, is_head: bool) -> io::Result<Option<Answer>> {
    loop {
        let Some(line) = text_line(stream)? else {
            return Ok(None);
        };
        let status = line
            .strip_prefix("HTTP/1.")
            .and_then(|rest| rest.get(2..5)?.parse().ok());
        let status: u16 = status.ok_or_else(|| invalid(&format!("no status line: {line:?}")))?;
        let mut headers = Vec::new();
        loop {
            let line = text_line(stream)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| invalid("no header"))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        if status < 200 {
            continue;
        }
        let mut answer = Answer {
            status,
            headers,
            body: Vec::new(),
        };
        if !is_head && !answer.is_endless() {
            read_body(stream, &mut answer)?;
        }
        return Ok(Some(answer));
    }
}

fn read_body(stream: &mut impl BufRead, answer: &mut Answer) -> io::Result<()> {
    if let Some(length) = answer.header("content-length") {
        let length: usize = length.parse().map_err(|_parse| invalid("no length"))?;
        answer.body = vec![0; length];
        return stream.read_exact(&mut answer.body);
    }
    if answer.header("transfer-encoding") != Some("chunked") {
        return stream.read_to_end(&mut answer.body).map(|_| ());
    }
    loop {
        let line = text_line(stream)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let length = usize::from_str_radix(&line, 16).map_err(|_parse| invalid("no chunk"))?;
        let mut chunk = vec![0; length + 2];
        stream.read_exact(&mut chunk)?;
        answer.body.extend(&chunk[..length]);
        if length == 0 {
            return Ok(());
        }
    }
}
