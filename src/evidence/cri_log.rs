//! The log format that the CRI prescribes: one line `TIME STREAM TAG TEXT` for each piece of output, where the tag `P`
//! marks a part whose rest follows, and `F` the last or only part.
//!
//! Lines of another form are kept as they are: nothing is lost by reading a log.

use std::ops::Range;

use crate::model::labelled;

/// A line of a log file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// Where its time is; `None` if the line is not of this format.
    pub time: Option<Range<usize>>,
    /// Who wrote it.
    pub stream: LogStream,
    /// Where its text is, without the line feed.
    pub text: Range<usize>,
    /// The rest of the text follows in a later line of the same stream.
    pub is_part: bool,
}

labelled! {
    /// Who wrote a line.
    pub enum LogStream {
        /// The container, to its standard output.
        Stdout,
        /// The container, to its standard error.
        Stderr,
        /// The line is not of this format, and names none.
        #[strum(serialize = "")]
        Unknown,
    }
}

/// Longest time in a line, by RFC 3339 with nanoseconds and an offset.
const TIME_BYTES_MAX: usize = 40;

/// Splits a log into its lines. The last one may lack its line feed.
pub fn lines(log: &[u8]) -> Vec<LogLine> {
    let mut lines = Vec::new();
    let mut at = 0;
    for line in log.split_inclusive(|b| *b == b'\n') {
        let text = line.strip_suffix(b"\n").unwrap_or(line);
        lines.push(parse(text, at));
        at += line.len();
    }
    lines
}

/// Parses a line that begins at `at`.
fn parse(line: &[u8], at: usize) -> LogLine {
    let other = LogLine {
        time: None,
        stream: LogStream::Unknown,
        text: at..at + line.len(),
        is_part: false,
    };
    let mut fields = line.splitn(4, |b| *b == b' ');
    let (Some(time), Some(stream), Some(tag)) = (fields.next(), fields.next(), fields.next())
    else {
        return other;
    };
    let stream = match stream {
        b"stdout" => LogStream::Stdout,
        b"stderr" => LogStream::Stderr,
        _ => return other,
    };
    let is_time = time.len() <= TIME_BYTES_MAX
        && time.first().is_some_and(u8::is_ascii_digit)
        && time
            .iter()
            .all(|b| b.is_ascii_digit() || b"-+:.TZ".contains(b));
    // More tags may follow the first, after a colon.
    let tag = tag.split(|b| *b == b':').next();
    let is_part = tag == Some(b"P");
    if !is_time || !(is_part || tag == Some(b"F")) {
        return other;
    }
    let text = fields.next().map_or(0, <[u8]>::len);
    LogLine {
        time: Some(at..at + time.len()),
        stream,
        text: at + line.len() - text..at + line.len(),
        is_part,
    }
}

/// The container's own output: the texts of a log's lines, parts joined, in the order in which their ends were
/// written. `is_whole` says whether the log begins with the container's first byte: else its first line is the rest of
/// one, and is left out.
pub fn output(log: &[u8], is_whole: bool) -> Vec<u8> {
    let mut output = Vec::with_capacity(log.len());
    for entry in entries(log, is_whole) {
        output.extend(entry.text);
    }
    output
}

/// A line of output, its parts joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry<'a> {
    /// When its first part was written, as the log says; empty if the line is of another format.
    pub time: &'a [u8],
    /// Who wrote it.
    pub stream: LogStream,
    /// What was written, with its line feed if it has one.
    pub text: Vec<u8>,
}

/// Joins the parts of a log's lines; see [`output`].
pub fn entries(log: &[u8], is_whole: bool) -> Vec<LogEntry<'_>> {
    let mut entries = Vec::new();
    let mut open: [Option<LogEntry<'_>>; 3] = Default::default();
    let bytes = |range: &Range<usize>| log.get(range.clone()).unwrap_or_default();
    let skipped = usize::from(!is_whole);
    for line in lines(log).into_iter().skip(skipped) {
        let Some(slot) = open.get_mut(line.stream as usize) else {
            continue;
        };
        let entry = slot.get_or_insert_with(|| LogEntry {
            time: line.time.as_ref().map(bytes).unwrap_or_default(),
            stream: line.stream,
            text: Vec::new(),
        });
        entry.text.extend_from_slice(bytes(&line.text));
        if !line.is_part {
            // The last line of a file that is being written may lack its end.
            if log.get(line.text.end) == Some(&b'\n') {
                entry.text.push(b'\n');
            }
            entries.extend(slot.take());
        }
    }
    entries.extend(open.into_iter().flatten());
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &[u8] = b"2026-01-01T00:00:00.000000001Z stdout F one
2026-01-01T00:00:01Z stdout P tw
2026-01-01T00:00:02Z stderr P er
2026-01-01T00:00:03+01:00 stdout P o
2026-01-01T00:00:04Z stderr F ror
2026-01-01T00:00:05Z stdout F 
2026-01-01T00:00:06Z stdout F
2026-01-01T00:00:07Z stdout F:tag  spaced  text \r
not of this format
2026-01-01T00:00:08Z stdout X x
2026-01-01T00:00:09Z stdout P cut
";

    #[test]
    fn joins_parts_for_each_stream() {
        let wanted = "one\nerror\ntwo\n\n spaced  text \r\nnot of this format\n\
                      2026-01-01T00:00:08Z stdout X x\ncut";
        assert_eq!(String::from_utf8(output(LOG, true)).unwrap(), wanted);
        let entries = entries(LOG, true);
        let two = &entries[2];
        assert_eq!(
            (two.time, two.stream),
            (&b"2026-01-01T00:00:01Z"[..], LogStream::Stdout)
        );
        let odd = &entries[5];
        assert_eq!((odd.time, odd.stream), (&b""[..], LogStream::Unknown));
    }

    #[test]
    fn a_half_first_line_is_left_out() {
        let from = &LOG[38..];
        assert!(output(from, false).starts_with(b"error\ntwo\n"));
        assert!(output(from, true).starts_with(b"F one\n"));
    }

    #[test]
    fn a_line_without_its_end_is_shown_without_one() {
        assert_eq!(output(b"2026-01-01T00:00:00Z stdout F one", true), b"one");
        assert_eq!(output(b"", true), b"");
        assert_eq!(output(b"\n\n", true), b"\n\n");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_split_into_lines_within_them(log: Vec<u8>) {
            let mut end = 0;
            for line in lines(&log) {
                proptest::prop_assert!(line.text.start >= end && line.text.end <= log.len());
                end = line.text.end;
            }
            output(&log, false);
        }
    }
}
