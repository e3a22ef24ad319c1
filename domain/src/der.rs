//! The little of DER that is read by our own code: one element after the other (X.690 8.1), with bounds. What a library has
//! read and verified is looked at with it, and where in a public key the numbers are.

pub const INTEGER: u8 = 0x02;
pub const BIT_STRING: u8 = 0x03;
pub const OCTET_STRING: u8 = 0x04;
pub const OBJECT_IDENTIFIER: u8 = 0x06;
pub const SEQUENCE: u8 = 0x30;

/// Reads one element of DER after the other. Ends where what comes is none.
#[derive(Debug, Clone)]
pub struct Reader<'c>(&'c [u8]);

impl<'c> Reader<'c> {
    pub fn of(der: &'c [u8]) -> Self {
        Self(der)
    }

    /// What has not been read yet.
    pub fn rest(&self) -> &'c [u8] {
        self.0
    }

    /// The contents of the next element, which has this tag.
    pub fn expect(&mut self, tag: u8) -> Option<&'c [u8]> {
        self.next().filter(|(found, _)| *found == tag).map(|(_, contents)| contents)
    }
}

impl<'c> Iterator for Reader<'c> {
    type Item = (u8, &'c [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let [tag, first, rest @ ..] = self.0 else { return None };
        let (length, rest) = match first {
            0..=0x7f => (usize::from(*first), rest),
            0x81..=0x83 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
            }
            // Nothing of more than 16 MiB is read here.
            _ => return None,
        };
        let (contents, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((*tag, contents))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_come_one_after_the_other_and_end_at_what_is_none() {
        let long = [&[SEQUENCE, 0x81, 0x80][..], &[7; 0x80]].concat();
        let der = [&[INTEGER, 1, 5][..], &long, &[OCTET_STRING, 3, 1]].concat();
        let mut reader = Reader::of(&der);
        assert_eq!(reader.expect(INTEGER), Some(&[5][..]));
        assert_eq!(reader.next().map(|(tag, contents)| (tag, contents.len())), Some((SEQUENCE, 0x80)));
        assert_eq!(reader.rest(), [OCTET_STRING, 3, 1]);
        assert_eq!(reader.next(), None);
        assert_eq!(Reader::of(&[INTEGER, 0x84, 0, 0, 0, 1, 5]).next(), None);
        assert_eq!(Reader::of(&[INTEGER, 1, 5]).expect(SEQUENCE), None);
    }
}
