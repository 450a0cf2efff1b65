//! Sampled Values (IEC 61850-9-2): `savPdu` with one `ASDU`.
//!
//! Its data are eight values of four bytes, each with a quality of four (the set of the guideline 9-2LE). Of ours the first four
//! values are the [`Mark`], the others 0.

use super::ber::{Fields, Malformed, put, put_unsigned, text, unsigned};
use super::mark::Mark;

const UNIT: u8 = 0x60;
const COUNT: u8 = 0x80;
const SEQUENCE_OF_ASDU: u8 = 0xa2;
const ASDU: u8 = 0x30;
const ID: u8 = 0x80;
const SAMPLE: u8 = 0x82;
const REVISION: u8 = 0x83;
const SYNCHRONISED: u8 = 0x85;
const DATA: u8 = 0x87;

/// A value and its quality.
const VALUE_BYTES: usize = 8;
const VALUES: usize = 8;

/// One sample of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampledValues<'b> {
    /// The stream (`svID`).
    pub id: &'b str,
    /// Which sample of its second (`smpCnt`).
    pub sample: u16,
    /// The revision of its configuration (`confRev`).
    pub revision: u32,
    /// To what the sender's clock is synchronised (`smpSynch`): 0 nothing, 1 a local clock, 2 a global one.
    pub synchronised: u8,
    /// What the first four values hold, if it is one of ours.
    pub mark: Option<Mark>,
}

impl<'b> SampledValues<'b> {
    /// It as a data unit. Without a mark the values are 0.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut data = [0; VALUES * VALUE_BYTES];
        if let Some(mark) = self.mark {
            for (value, part) in data.chunks_mut(VALUE_BYTES).zip(mark.to_bytes().chunks(4)) {
                value[..4].copy_from_slice(part);
            }
        }
        let mut asdu = Vec::new();
        put(&mut asdu, ID, self.id.as_bytes());
        put(&mut asdu, SAMPLE, &self.sample.to_be_bytes());
        put(&mut asdu, REVISION, &self.revision.to_be_bytes());
        put(&mut asdu, SYNCHRONISED, &[self.synchronised]);
        put(&mut asdu, DATA, &data);
        let (mut all, mut content, mut unit) = (Vec::new(), Vec::new(), Vec::new());
        put(&mut all, ASDU, &asdu);
        put_unsigned(&mut content, COUNT, 1);
        put(&mut content, SEQUENCE_OF_ASDU, &all);
        put(&mut unit, UNIT, &content);
        unit
    }

    /// Reads the first sample of a data unit; `is_marked` says by the stream's name whether it is one of ours.
    ///
    /// # Errors
    /// Bytes that are no such unit.
    pub fn parse(unit: &'b [u8], is_marked: impl Fn(&str) -> bool) -> Result<Self, Malformed> {
        let mut content = Fields::of(Fields::of(unit).find(UNIT, "savPdu")?);
        if unsigned(content.find(COUNT, "noASDU")?, "noASDU")? == 0 {
            return Err(Malformed::Value("noASDU"));
        }
        let mut all = Fields::of(content.find(SEQUENCE_OF_ASDU, "seqASDU")?);
        let mut asdu = Fields::of(all.find(ASDU, "ASDU")?);
        let id = text(asdu.find(ID, "svID")?, "svID")?;
        let fixed = |what| move |_| Malformed::Value(what);
        let sample = asdu.find(SAMPLE, "smpCnt")?;
        let sample = sample.try_into().map_err(fixed("smpCnt"))?;
        let revision = asdu.find(REVISION, "confRev")?;
        let revision = revision.try_into().map_err(fixed("confRev"))?;
        let [synchronised] = *asdu.find(SYNCHRONISED, "smpSynch")? else {
            return Err(Malformed::Value("smpSynch"));
        };
        let data = asdu.find(DATA, "seqData")?;
        let mark = is_marked(id).then(|| mark_of(data)).transpose()?;
        Ok(Self {
            id,
            sample: u16::from_be_bytes(sample),
            revision: u32::from_be_bytes(revision),
            synchronised,
            mark,
        })
    }
}

fn mark_of(data: &[u8]) -> Result<Mark, Malformed> {
    if data.len() != VALUES * VALUE_BYTES {
        return Err(Malformed::Value("seqData"));
    }
    let mut bytes = [0; Mark::BYTES];
    for (part, value) in bytes.chunks_mut(4).zip(data.chunks(VALUE_BYTES)) {
        part.copy_from_slice(&value[..4]);
    }
    Ok(Mark::of(bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ONE: SampledValues<'static> = SampledValues {
        id: "steadyvm01",
        sample: 3999,
        revision: 1,
        synchronised: 0,
        mark: Some(Mark {
            sequence: 7999,
            sent_ns: 1_764_400_000_123_456_789,
        }),
    };

    /// The bytes as IEC 61850-9-2 has them: lengths, tags, order.
    #[test]
    fn a_unit_has_the_bytes_of_the_standard() {
        let bytes = ONE.to_bytes();
        let start = [
            0x60, 0x62, 0x80, 0x01, 0x01, 0xa2, 0x5d, 0x30, 0x5b, 0x80, 0x0a,
        ];
        assert_eq!(bytes[..11], start);
        assert_eq!(&bytes[11..21], b"steadyvm01");
        let middle = [
            0x82, 0x02, 0x0f, 0x9f, 0x83, 0x04, 0, 0, 0, 1, 0x85, 0x01, 0x00, 0x87, 0x40,
        ];
        assert_eq!(bytes[21..36], middle);
        assert_eq!(bytes.len(), 36 + 64);
        assert_eq!(
            bytes[36..44],
            [0; 8],
            "the sequence number's first half, and a good quality"
        );
        assert_eq!(bytes[44..52], [0, 0, 0x1f, 0x3f, 0, 0, 0, 0]);
    }

    #[test]
    fn optional_fields_of_others_are_passed_over() {
        let mut asdu = Vec::new();
        put(&mut asdu, ID, b"MU01");
        put(&mut asdu, 0x81, b"MU01/LLN0$PhsMeas");
        put(&mut asdu, SAMPLE, &[0, 9]);
        put(&mut asdu, REVISION, &[0, 0, 0, 2]);
        put(&mut asdu, 0x84, &[0; 8]);
        put(&mut asdu, SYNCHRONISED, &[2]);
        put(&mut asdu, DATA, &[1; 64]);
        let (mut all, mut content, mut unit) = (Vec::new(), Vec::new(), Vec::new());
        put(&mut all, ASDU, &asdu);
        put_unsigned(&mut content, COUNT, 1);
        put(&mut content, SEQUENCE_OF_ASDU, &all);
        put(&mut unit, UNIT, &content);
        let read = SampledValues::parse(&unit, |_| false).unwrap();
        let expected = SampledValues {
            id: "MU01",
            sample: 9,
            revision: 2,
            synchronised: 2,
            mark: None,
        };
        assert_eq!(read, expected);
    }

    proptest! {
        #[test]
        fn a_sample_is_read_as_it_is_written(sample in any::<u16>(), sequence in any::<u64>(), sent_ns in any::<u64>()) {
            let one = SampledValues { sample, mark: Some(Mark { sequence, sent_ns }), ..ONE };
            let bytes = one.to_bytes();
            prop_assert_eq!(SampledValues::parse(&bytes, |_| true), Ok(one));
        }

        #[test]
        fn no_damage_panics(at in 0_usize..100, byte in any::<u8>(), length in 0_usize..101) {
            let mut bytes = ONE.to_bytes();
            bytes[at] = byte;
            let _ = SampledValues::parse(&bytes[..length.min(bytes.len())], |_| true);
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = SampledValues::parse(&bytes, |_| true);
        }
    }
}
