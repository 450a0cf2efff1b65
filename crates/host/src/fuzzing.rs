//! Bodies of fuzz targets: a kernel's, a file's or a journal's bytes, and what must hold whatever they
//! are. They are here since what they drive is private.

mod files;
mod journal;

pub use files::files;
pub use journal::journal;

/// Takes values off the front; zeros when there is nothing left.
struct Source<'a>(&'a [u8]);

impl<'a> Source<'a> {
    fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (now, later) = self.0.split_at(len.min(self.0.len()));
        self.0 = later;
        now
    }

    /// A number below `most`.
    fn below(&mut self, most: usize) -> usize {
        let number = self
            .bytes(2)
            .iter()
            .fold(0, |number, byte| number << 8 | usize::from(*byte));
        number % most
    }

    /// What is before the next line of `%%`.
    fn text(&mut self) -> &'a [u8] {
        let end = self.0.windows(3).position(|three| three == b"%%\n");
        let text = self.bytes(end.unwrap_or(self.0.len()));
        self.bytes(3);
        text
    }
}

#[cfg(test)]
mod tests;
