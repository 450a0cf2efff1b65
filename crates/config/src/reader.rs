//! The reader: serde over TOML, whose values and errors keep their places.

use std::borrow::Cow;
use std::ops::Range;

use serde::de::value::CowStrDeserializer;
use serde::de::{self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::duration::{TIME, written};
use crate::place::PLACED;
use crate::source::Source;
use crate::{Error, Place, hints, old};

impl<'s> Source<'s> {
    /// The tables of the text, which has no old words.
    pub fn tables(&self) -> Result<Spanned<DeTable<'s>>, Error> {
        let tables = DeTable::parse(self.text).map_err(|error| Error {
            place: Some(self.place(error.span().map_or(0, |span| span.start))),
            message: hints::words(error.message()),
        })?;
        old::refuse(self, tables.get_ref())?;
        Ok(tables)
    }

    /// The tables as typed values.
    pub fn read<T: DeserializeOwned>(&self, tables: Spanned<DeTable<'s>>) -> Result<T, Error> {
        let span = tables.span();
        let root = Reader {
            value: DeValue::Table(tables.into_inner()),
            span,
            source: self,
        };
        T::deserialize(root).map_err(|error| Error {
            message: hints::words(&error.message),
            ..error
        })
    }
}

/// A text in another shape than [`crate::File`]'s, for what changes one value and plans again: a cluster, a sweep.
///
/// # Errors
/// A text that is no TOML, or not of the shape.
pub fn untyped<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    let source = Source::new("", text);
    source.read(source.tables()?)
}

/// A value of the text.
struct Reader<'i, 's> {
    value: DeValue<'i>,
    span: Range<usize>,
    source: &'s Source<'s>,
}

/// A value by its type. What the type refuses once the value is read is at the value, too.
fn placed<'i, S: DeserializeSeed<'i>>(
    seed: S,
    value: Spanned<DeValue<'i>>,
    source: &Source<'_>,
) -> Result<S::Value, Error> {
    let start = value.span().start;
    let read = seed.deserialize(Reader::of(value, source));
    read.map_err(|error| error.or_at(|| source.place(start)))
}

impl<'i, 's> Reader<'i, 's> {
    fn of(value: Spanned<DeValue<'i>>, source: &'s Source<'s>) -> Self {
        Self {
            span: value.span(),
            value: value.into_inner(),
            source,
        }
    }

    /// A time, which is a text: a number would be of a unit that nobody sees.
    fn time<V: Visitor<'i>>(self, visitor: V) -> Result<V::Value, Error> {
        let instead = match &self.value {
            DeValue::Integer(number) => {
                let whole = i64::from_str_radix(number.as_str(), number.radix());
                whole.map_or_else(|_| "\"10ms\"".to_owned(), |whole| written(whole.into()))
            }
            DeValue::Float(_) => "\"10ms\"".to_owned(),
            _ => return self.deserialize_any(visitor),
        };
        let message = format!("a time is a text with its unit; write {instead}");
        Err(Error::new(self.source.place(self.span.start), message))
    }
}

impl<'i> Deserializer<'i> for Reader<'i, '_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'i>>(self, visitor: V) -> Result<V::Value, Error> {
        let Self {
            value,
            span,
            source,
        } = self;
        match value {
            DeValue::String(Cow::Owned(text)) => visitor.visit_string(text),
            DeValue::String(Cow::Borrowed(text)) => visitor.visit_borrowed_str(text),
            DeValue::Integer(number) => {
                let (digits, radix) = (number.as_str(), number.radix());
                if let Ok(number) = i64::from_str_radix(digits, radix) {
                    visitor.visit_i64(number)
                } else if let Ok(number) = u64::from_str_radix(digits, radix) {
                    visitor.visit_u64(number)
                } else {
                    Err(de::Error::custom(format!("{number} is too large a number")))
                }
            }
            DeValue::Float(number) => match number.as_str().parse() {
                Ok(number) => visitor.visit_f64(number),
                Err(_) => Err(de::Error::custom(format!("{number} is no number"))),
            },
            DeValue::Boolean(is_true) => visitor.visit_bool(is_true),
            DeValue::Datetime(time) => Err(de::Error::invalid_type(
                de::Unexpected::Other(&format!("date or time {time}")),
                &visitor,
            )),
            DeValue::Array(items) => visitor.visit_seq(List {
                items: items.into_iter(),
                source,
            }),
            DeValue::Table(table) => visitor.visit_map(Entries {
                rest: table.into_iter(),
                value: None,
                source,
            }),
        }
        .map_err(|error: Error| error.or_at(|| source.place(span.start)))
    }

    fn deserialize_option<V: Visitor<'i>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'i>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        if name == TIME {
            return self.time(visitor);
        }
        if name != PLACED {
            return visitor.visit_newtype_struct(self);
        }
        let place = self.source.place(self.span.start);
        visitor.visit_seq(Parts {
            next: 0,
            place,
            reader: Some(self),
        })
    }

    /// A table is no list of its values.
    fn deserialize_struct<V: Visitor<'i>>(
        self,
        _name: &'static str,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if matches!(self.value, DeValue::Array(_)) {
            let error: Error = de::Error::invalid_type(de::Unexpected::Seq, &visitor);
            return Err(error.or_at(|| self.source.place(self.span.start)));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'i>>(
        self,
        _name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Self {
            value,
            span,
            source,
        } = self;
        let read = match value {
            DeValue::String(word) => {
                let word: CowStrDeserializer<'_, Error> = word.into_deserializer();
                visitor.visit_enum(word)
            }
            other => {
                let message = format!(
                    "expected a word: {}, not a value of type {}",
                    variants.join(", "),
                    other.type_str()
                );
                Err(de::Error::custom(message))
            }
        };
        read.map_err(|error: Error| error.or_at(|| source.place(span.start)))
    }

    forward_to_deserialize_any! {
        <V: Visitor<'i>>
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map identifier ignored_any
    }
}

/// The items of a list.
struct List<'s, I> {
    items: I,
    source: &'s Source<'s>,
}

impl<'i, I: Iterator<Item = Spanned<DeValue<'i>>>> de::SeqAccess<'i> for List<'_, I> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'i>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let item = self.items.next();
        item.map(|item| placed(seed, item, self.source)).transpose()
    }
}

/// The keys of a table, and their values.
struct Entries<'i, 's, I> {
    rest: I,
    value: Option<Spanned<DeValue<'i>>>,
    source: &'s Source<'s>,
}

impl<'i, I> de::MapAccess<'i> for Entries<'i, '_, I>
where
    I: Iterator<Item = (Spanned<Cow<'i, str>>, Spanned<DeValue<'i>>)>,
{
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'i>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        let Some((key, value)) = self.rest.next() else {
            return Ok(None);
        };
        self.value = Some(value);
        let start = key.span().start;
        let key: CowStrDeserializer<'i, Error> = key.into_inner().into_deserializer();
        let read = seed.deserialize(key).map(Some);
        read.map_err(|error| error.or_at(|| self.source.place(start)))
    }

    fn next_value_seed<V: DeserializeSeed<'i>>(&mut self, seed: V) -> Result<V::Value, Error> {
        let missing = || de::Error::custom("a value is read before its key");
        let value = self.value.take().ok_or_else(missing)?;
        placed(seed, value, self.source)
    }
}

/// The parts of a [`crate::Placed`]: the file, the line, the column, and the value.
struct Parts<'i, 's> {
    next: u8,
    place: Place,
    reader: Option<Reader<'i, 's>>,
}

impl<'i> de::SeqAccess<'i> for Parts<'i, '_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'i>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        self.next += 1;
        let part = match self.next {
            1 => seed.deserialize(std::mem::take(&mut self.place.file).into_deserializer()),
            2 => seed.deserialize(self.place.line.into_deserializer()),
            3 => seed.deserialize(self.place.column.into_deserializer()),
            _ => match self.reader.take() {
                Some(reader) => seed.deserialize(reader),
                None => return Ok(None),
            },
        };
        part.map(Some)
    }
}
