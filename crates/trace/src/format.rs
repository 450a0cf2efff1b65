//! The description of a tracepoint's payload: `events/SYSTEM/NAME/format` of tracefs.
//! Documentation/trace/events.rst, section "Event formats".

use std::collections::BTreeMap;

/// Where a field lies in a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    offset: usize,
    size: usize,
    /// A `__data_loc`: the field holds where the data is.
    elsewhere: bool,
}

/// A tracepoint's number and fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Format {
    /// The number that starts every payload, and that `perf_event_open` takes.
    pub id: u16,
    fields: BTreeMap<String, Field>,
}

impl Format {
    /// Reads a format file; `None` if it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let id = text
            .lines()
            .find_map(|line| line.strip_prefix("ID:"))?
            .trim()
            .parse()
            .ok()?;
        let fields = text.lines().filter_map(|line| field(line.trim())).collect();
        Some(Self { id, fields })
    }

    /// The field of this name.
    pub fn field(&self, name: &str) -> Option<Field> {
        self.fields.get(name).copied()
    }
}

/// Reads `field:unsigned short common_type; offset:0; size:2; signed:0;`.
fn field(line: &str) -> Option<(String, Field)> {
    let mut parts = line.split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?;
    let number = |part: Option<&str>, key: &str| part?.strip_prefix(key)?.parse().ok();
    let offset = number(parts.next(), "offset:")?;
    let size = number(parts.next(), "size:")?;
    let last = declaration.split_whitespace().last()?;
    let name = last.split('[').next()?.trim_start_matches('*');
    Some((
        name.to_owned(),
        Field {
            offset,
            size,
            elsewhere: declaration.starts_with("__data_loc "),
        },
    ))
}

impl Field {
    /// The field's value as a number; `None` if the payload is cut or the field is none.
    pub fn number(self, payload: &[u8]) -> Option<u64> {
        let bytes = payload.get(self.offset..self.offset.checked_add(self.size)?)?;
        if bytes.len() > 8 {
            return None;
        }
        let mut wide = [0; 8];
        wide[..bytes.len()].copy_from_slice(bytes);
        Some(u64::from_le_bytes(wide))
    }

    /// The field's bytes, wherever they are; `None` if the payload is cut.
    pub fn bytes(self, payload: &[u8]) -> Option<&[u8]> {
        if !self.elsewhere {
            return payload.get(self.offset..self.offset.checked_add(self.size)?);
        }
        // Length in the upper half, offset in the lower: include/trace/stages/stage2.
        let place = self.number(payload)?;
        let (offset, length) = ((place & 0xffff) as usize, (place >> 16 & 0xffff) as usize);
        payload.get(offset..offset + length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ENTRY: &str = "name: irq_handler_entry\nID: 145\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:int irq;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:__data_loc char[] name;\toffset:12;\tsize:4;\tsigned:0;\n\
        \tfield:char comm[16];\toffset:16;\tsize:16;\tsigned:0;\n\n\
        print fmt: \"irq=%d name=%s\", REC->irq, __get_str(name)\n";

    #[test]
    fn fields_are_found_by_name() {
        let format = Format::parse(ENTRY).unwrap();
        assert_eq!(format.id, 145);
        let mut payload = vec![145, 0, 0, 0, 7, 0, 0, 0, 29, 0, 0, 0, 32, 0, 5, 0];
        payload.extend(*b"swapper/0\0\0\0\0\0\0\0");
        payload.extend(*b"rt-0\0");
        let field = |name| format.field(name).unwrap();
        assert_eq!(field("common_pid").number(&payload), Some(7));
        assert_eq!(field("irq").number(&payload), Some(29));
        assert_eq!(field("name").bytes(&payload), Some(&b"rt-0\0"[..]));
        assert!(
            field("comm")
                .bytes(&payload)
                .unwrap()
                .starts_with(b"swapper/0\0")
        );
        assert_eq!(format.field("absent"), None);
        assert_eq!(field("name").bytes(&payload[..34]), None, "cut");
        assert_eq!(field("irq").number(&payload[..10]), None, "cut");
    }

    #[test]
    fn what_is_no_format_is_refused() {
        assert_eq!(Format::parse(""), None);
        assert_eq!(Format::parse("name: x\nID: many\n"), None);
    }

    proptest! {
        #[test]
        fn no_format_and_no_payload_panics(
            text in ".{0,200}",
            offset in any::<usize>(),
            size in any::<usize>(),
            payload in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let lines = format!("ID: 1\nfield:{text}; offset:{offset}; size:{size};\n");
            for text in [text, lines] {
                let Some(format) = Format::parse(&text) else { continue };
                for field in format.fields.values() {
                    let _ = (field.number(&payload), field.bytes(&payload));
                }
            }
            for elsewhere in [true, false] {
                let field = Field { offset: offset % 70, size: size % 9, elsewhere };
                let _ = (field.number(&payload), field.bytes(&payload));
            }
        }
    }
}
