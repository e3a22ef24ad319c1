//! Where log lines go: one bounded buffer in memory, one thread that writes it out.
//!
//! A line costs its caller a copy under a short lock and never a system call, so that a slow terminal or a full
//! pipe cannot hold up an answer. Lines gather for up to ten milliseconds; a process that is killed loses those.
//! When the reader of the log is so slow that the buffer fills, lines are dropped and counted: the accept path is
//! worth more than its log.

use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::time::Duration;

/// About 20,000 lines: half a second of the fastest flood that a small machine can accept.
const BUFFER_BYTES_MAX: usize = 4 * 1024 * 1024;
const GATHER: Duration = Duration::from_millis(10);

#[derive(Debug, Default)]
struct State {
    buffer: Vec<u8>,
    closed: bool,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    filled: Condvar,
    dropped: AtomicU64,
}

/// A handle to the log's output; cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sink {
    shared: Arc<Shared>,
}

impl Sink {
    /// Starts the thread that writes to `out`. It ends after `close`.
    pub(crate) fn start(mut out: impl Write + Send + 'static) -> io::Result<(Self, Writer)> {
        let sink = Self::default();
        let shared = Arc::clone(&sink.shared);
        let (ends, ended) = mpsc::channel();
        std::thread::Builder::new().name("lines-writer".into()).spawn(move || {
            let _ends: mpsc::Sender<()> = ends;
            shared.write_out(&mut out);
        })?;
        Ok((sink, Writer { ended }))
    }

    /// Adds whole lines, each with its line feed.
    pub(crate) fn push(&self, lines: &[u8]) {
        let mut state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.buffer.len() + lines.len() > BUFFER_BYTES_MAX || state.closed {
            self.shared.dropped.fetch_add(count(lines), Ordering::Relaxed);
            return;
        }
        let was_empty = state.buffer.is_empty();
        state.buffer.extend_from_slice(lines);
        drop(state);
        if was_empty {
            self.shared.filled.notify_one();
        }
    }

    /// Lines that were not written because nobody read the log fast enough.
    pub(crate) fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// Takes no more lines; the thread writes what there is and ends.
    pub(crate) fn close(&self) {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner).closed = true;
        self.shared.filled.notify_all();
    }
}

/// The thread that writes.
pub(crate) struct Writer {
    /// Hears nothing but the other end going away.
    ended: mpsc::Receiver<()>,
}

impl Writer {
    /// Has it written everything, or failed to? Not if the reader of the log is stuck.
    pub(crate) fn ends_within(&self, limit: Duration) -> bool {
        self.ended.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Disconnected)
    }
}

impl Shared {
    fn write_out(&self, out: &mut dyn Write) {
        let mut batch = Vec::new();
        loop {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            while state.buffer.is_empty() && !state.closed {
                state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if !state.closed {
                // Let a few more lines gather: one write for all of them.
                drop(state);
                std::thread::park_timeout(GATHER);
                state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            }
            if state.buffer.is_empty() && state.closed {
                return;
            }
            std::mem::swap(&mut batch, &mut state.buffer);
            drop(state);
            // A log that cannot be written to must not take the appliance down with it.
            let written = out.write_all(&batch).and_then(|()| out.flush());
            if written.is_err() {
                self.dropped.fetch_add(count(&batch), Ordering::Relaxed);
            }
            batch.clear();
        }
    }
}

fn count(lines: &[u8]) -> u64 {
    (lines.split(|byte| *byte == b'\n').count() - 1) as u64
}

/// `tracing` writes through the same buffer, so that lines of both kinds keep their order.
impl Write for Sink {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        self.push(lines);
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Writes by what a test wants done with the bytes.
    struct Out<F>(F);

    impl<F: FnMut(&[u8]) -> io::Result<()>> Write for Out<F> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            (self.0)(bytes)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Everything that `log` writes before the sink is closed.
    pub(crate) fn written(log: impl FnOnce(&Sink)) -> String {
        let (sender, receiver) = mpsc::channel();
        let out = Out(move |bytes: &[u8]| sender.send(bytes.to_vec()).map_err(io::Error::other));
        let (sink, writer) = Sink::start(out).unwrap();
        log(&sink);
        sink.close();
        assert!(writer.ends_within(Duration::from_mins(1)));
        assert_eq!(sink.dropped(), 0);
        String::from_utf8(receiver.iter().flatten().collect()).unwrap()
    }

    #[test]
    fn lines_come_out_in_order_and_whole() {
        let all = written(|sink| {
            for n in 0..1_000 {
                sink.push(format!("line {n}\n").as_bytes());
            }
            sink.push(b"last\n");
        });
        let expected: String = (0..1_000).map(|n| format!("line {n}\n")).chain(["last\n".to_owned()]).collect();
        assert_eq!(all, expected);
    }

    #[test]
    fn a_write_that_fails_counts_every_line_of_its_batch() {
        let broken = Out(|_: &[u8]| Err(io::ErrorKind::BrokenPipe.into()));
        let (sink, writer) = Sink::start(broken).unwrap();
        for _ in 0..10 {
            sink.push(b"one\ntwo\n");
        }
        sink.close();
        assert!(writer.ends_within(Duration::from_mins(1)));
        assert_eq!(sink.dropped(), 20);
    }

    #[test]
    fn a_stuck_reader_costs_lines_and_not_time() {
        let (release, stuck) = mpsc::channel::<()>();
        let (sink, writer) = Sink::start(Out(move |_: &[u8]| stuck.recv().map_err(io::Error::other))).unwrap();
        let mut line = vec![b'x'; 64 * 1024];
        line.push(b'\n');
        for _ in 0..1_000 {
            sink.push(&line);
        }
        assert!(sink.dropped() > 0);
        sink.close();
        assert!(!writer.ends_within(Duration::from_millis(50)), "nor the end of the process");
        drop(release);
        assert!(writer.ends_within(Duration::from_mins(1)));
    }
}
