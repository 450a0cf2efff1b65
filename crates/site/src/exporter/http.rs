//! What a collector asks by HTTP, and what it is told. Pure: from bytes to bytes.

use std::fmt::Write as _;

use steadyvm_sched::exposition::Format;

/// A request has this many bytes at most; collectors send a few hundred.
pub const MOST_BYTES: usize = 8 << 10;
/// And this many headers.
const MOST_HEADERS: usize = 64;
/// Where the metrics are.
const PLACE: &str = "/metrics";

/// What bytes ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// More bytes are to come.
    Unfinished,
    /// Metrics.
    Metrics {
        /// In this form.
        format: Format,
        /// Whether the head of the answer is all that is wanted.
        is_head: bool,
    },
    /// Something else, which this refuses.
    Refused(Refusal),
}

/// Why no metrics are told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It is not HTTP, or is too long.
    NotHttp,
    /// Another place than [`PLACE`].
    NotThere,
    /// Another method than GET and HEAD.
    NotGet,
    /// It took too long to say what it wants.
    TooSlow,
}

impl Refusal {
    fn status(self) -> (&'static str, &'static str) {
        match self {
            Self::NotHttp => ("400 Bad Request", "this is no HTTP request of up to 8 KiB"),
            Self::NotThere => ("404 Not Found", "metrics are at /metrics"),
            Self::NotGet => ("405 Method Not Allowed", "only GET and HEAD are answered"),
            Self::TooSlow => ("408 Request Timeout", "the request took too long"),
        }
    }
}

/// Reads a request as far as it has come.
pub fn read(bytes: &[u8]) -> Asked {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(_)) => {}
        Ok(httparse::Status::Partial) if bytes.len() < MOST_BYTES => return Asked::Unfinished,
        _ => return Asked::Refused(Refusal::NotHttp),
    }
    let is_head = match request.method {
        Some("GET") => false,
        Some("HEAD") => true,
        _ => return Asked::Refused(Refusal::NotGet),
    };
    let place = request.path.unwrap_or_default().split('?').next();
    if place != Some(PLACE) {
        return Asked::Refused(Refusal::NotThere);
    }
    let knows_open_metrics = request.headers.iter().any(|header| {
        let value = String::from_utf8_lossy(header.value);
        header.name.eq_ignore_ascii_case("accept") && value.contains("application/openmetrics-text")
    });
    let format = if knows_open_metrics {
        Format::OpenMetrics
    } else {
        Format::Prometheus
    };
    Asked::Metrics { format, is_head }
}

/// An answer with metrics.
pub fn metrics(text: &str, format: Format, is_head: bool) -> Vec<u8> {
    let kind = match format {
        Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
    };
    answer("200 OK", kind, text, is_head)
}

/// An answer that refuses.
pub fn refusal(refusal: Refusal) -> Vec<u8> {
    let (status, why) = refusal.status();
    answer(
        status,
        "text/plain; charset=utf-8",
        &format!("{why}\n"),
        false,
    )
}

/// An answer that says why there are no metrics now.
pub fn failure(why: &str) -> Vec<u8> {
    let text = format!("{why}\n");
    answer(
        "503 Service Unavailable",
        "text/plain; charset=utf-8",
        &text,
        false,
    )
}

/// One answer ends a connection: a client that keeps it holds nothing.
fn answer(status: &str, kind: &str, text: &str, is_head: bool) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n");
    // Writing to a String cannot fail.
    let _ = write!(
        answer,
        "Content-Length: {}\r\nConnection: close\r\n\r\n",
        text.len()
    );
    if !is_head {
        answer.push_str(text);
    }
    answer.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_collector_gets_the_form_that_it_asks_for() {
        let of = |accept: &str| read(format!("GET /metrics HTTP/1.1\r\n{accept}\r\n").as_bytes());
        let metrics = |format| Asked::Metrics {
            format,
            is_head: false,
        };
        assert_eq!(of(""), metrics(Format::Prometheus));
        assert_eq!(of("Accept: text/plain\r\n"), metrics(Format::Prometheus));
        let prometheus = "ACCEPT: application/openmetrics-text;version=1.0.0;q=0.5,*/*;q=0.1\r\n";
        assert_eq!(of(prometheus), metrics(Format::OpenMetrics));
    }

    #[test]
    fn other_requests_are_refused() {
        let refused = |text: &[u8], why| assert_eq!(read(text), Asked::Refused(why));
        refused(b"GET /etc/passwd HTTP/1.1\r\n\r\n", Refusal::NotThere);
        refused(b"POST /metrics HTTP/1.1\r\n\r\n", Refusal::NotGet);
        refused(b"\x16\x03\x01 TLS\r\n\r\n", Refusal::NotHttp);
        refused(&[b'a'; MOST_BYTES], Refusal::NotHttp);
        assert_eq!(read(b"GET /metrics HTTP/1.1\r\n"), Asked::Unfinished);
    }

    #[test]
    fn an_answer_has_its_length_and_ends_the_connection() {
        let whole = String::from_utf8(metrics("a 1\n", Format::Prometheus, false)).unwrap();
        assert!(whole.ends_with("Content-Length: 4\r\nConnection: close\r\n\r\na 1\n"));
        let head = String::from_utf8(metrics("a 1\n", Format::Prometheus, true)).unwrap();
        assert_eq!(whole.strip_suffix("a 1\n"), Some(&*head));
    }

    proptest! {
        #[test]
        fn no_request_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes);
        }
    }
}
