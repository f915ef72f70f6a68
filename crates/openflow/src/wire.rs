//! Reading and writing big-endian bytes without ever trusting a length.

use thiserror::Error;

/// Why bytes could not be decoded.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum DecodeError {
    /// The bytes end before the value does.
    #[error("{what}: needs {needed} more bytes, {left} left")]
    Truncated {
        /// The part that was being decoded.
        what: &'static str,
        /// How many bytes the value needs.
        needed: usize,
        /// How many bytes there were.
        left: usize,
    },
    /// A length field contradicts the value it belongs to.
    #[error("{what}: length {length} is not possible here")]
    BadLength {
        /// The part that was being decoded.
        what: &'static str,
        /// The length that was given.
        length: usize,
    },
    /// A field holds a value that the protocol does not allow there.
    #[error("{what}: value {value:#x} is not allowed")]
    BadValue {
        /// The part that was being decoded.
        what: &'static str,
        /// The value that was given.
        value: u64,
    },
    /// Actions nested deeper than any switch accepts.
    #[error("actions nested more than {0} deep")]
    TooDeep(usize),
}

/// Result of a decoder.
pub type Decoded<T> = Result<T, DecodeError>;

/// A cursor over bytes from outside: every read is checked.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    start: usize,
}

impl<'a> Reader<'a> {
    /// Reads from the first of `bytes` on.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, start: bytes.len() }
    }

    /// How many bytes are left.
    pub fn left(&self) -> usize {
        self.bytes.len()
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// How many bytes have been read so far.
    pub fn offset(&self) -> usize {
        self.start - self.bytes.len()
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize, what: &'static str) -> Decoded<&'a [u8]> {
        match self.bytes.split_at_checked(n) {
            Some((head, tail)) => {
                self.bytes = tail;
                Ok(head)
            }
            None => Err(DecodeError::Truncated { what, needed: n, left: self.bytes.len() }),
        }
    }

    /// All bytes that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.bytes)
    }

    /// A reader over the next `n` bytes only.
    pub fn sub(&mut self, n: usize, what: &'static str) -> Decoded<Reader<'a>> {
        self.take(n, what).map(Reader::new)
    }

    /// Passes over `n` bytes of padding; like OVS, does not ask that they be zero.
    pub fn skip(&mut self, n: usize, what: &'static str) -> Decoded<()> {
        self.take(n, what).map(drop)
    }

    /// The next bytes as an array.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Decoded<[u8; N]> {
        match self.bytes.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.bytes = tail;
                Ok(*head)
            }
            None => Err(DecodeError::Truncated { what, needed: N, left: self.bytes.len() }),
        }
    }

    /// The next byte; `what` names it in errors.
    pub fn u8(&mut self, what: &'static str) -> Decoded<u8> {
        self.array::<1>(what).map(|[b]| b)
    }

    /// The next two bytes.
    pub fn u16(&mut self, what: &'static str) -> Decoded<u16> {
        self.array(what).map(u16::from_be_bytes)
    }

    /// The next four bytes.
    pub fn u32(&mut self, what: &'static str) -> Decoded<u32> {
        self.array(what).map(u32::from_be_bytes)
    }

    /// The next eight bytes.
    pub fn u64(&mut self, what: &'static str) -> Decoded<u64> {
        self.array(what).map(u64::from_be_bytes)
    }

    /// The next `n` (at most 16) bytes as one number.
    pub fn uint(&mut self, n: usize, what: &'static str) -> Decoded<u128> {
        if n > 16 {
            return Err(DecodeError::BadLength { what, length: n });
        }
        Ok(self.take(n, what)?.iter().fold(0, |acc, b| acc << 8 | u128::from(*b)))
    }
}

/// The low 32 bits.
pub(crate) fn low_u32(value: u128) -> u32 {
    u32::try_from(value & u128::from(u32::MAX)).unwrap_or_default()
}

/// The low 16 bits.
pub(crate) fn low_u16(value: u128) -> u16 {
    u16::try_from(value & u128::from(u16::MAX)).unwrap_or_default()
}

/// The low 8 bits.
pub(crate) fn low_u8(value: u128) -> u8 {
    u8::try_from(value & u128::from(u8::MAX)).unwrap_or_default()
}

/// Appends big-endian values to a buffer.
pub trait Put {
    /// Appends a single byte.
    fn put_u8(&mut self, v: u8);
    /// Appends the bytes unchanged.
    fn put(&mut self, bytes: &[u8]);
    /// Appends `n` zero bytes.
    fn put_zeros(&mut self, n: usize);
    /// How many bytes the buffer holds.
    fn len_now(&self) -> usize;
    /// Overwrites the two bytes at `at`, which must exist.
    fn patch_u16(&mut self, at: usize, v: u16);

    /// Appends two bytes in network byte order.
    fn put_u16(&mut self, v: u16) {
        self.put(&v.to_be_bytes());
    }
    /// Appends four bytes in network byte order.
    fn put_u32(&mut self, v: u32) {
        self.put(&v.to_be_bytes());
    }
    /// Appends eight bytes in network byte order.
    fn put_u64(&mut self, v: u64) {
        self.put(&v.to_be_bytes());
    }
    /// Appends the low `n` (at most 16) bytes of `v`.
    fn put_uint(&mut self, v: u128, n: usize) {
        let bytes = v.to_be_bytes();
        self.put(bytes.get(16 - n.min(16)..).unwrap_or_default());
    }
    /// Appends zeros until the bytes since `start` are a multiple of eight.
    fn pad8_since(&mut self, start: usize) {
        let n = (8 - (self.len_now() - start) % 8) % 8;
        self.put_zeros(n);
    }
    /// Writes the number of bytes since `start` into the length field at `at`; a value longer than the field can say
    /// saturates, and the switch refuses it.
    fn patch_len(&mut self, at: usize, start: usize) {
        let len = u16::try_from(self.len_now() - start).unwrap_or(u16::MAX);
        self.patch_u16(at, len);
    }
}

impl Put for Vec<u8> {
    fn put_u8(&mut self, v: u8) {
        self.push(v);
    }
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
    fn put_zeros(&mut self, n: usize) {
        self.resize(self.len() + n, 0);
    }
    fn len_now(&self) -> usize {
        self.len()
    }
    fn patch_u16(&mut self, at: usize, v: u16) {
        if let Some(slot) = self.get_mut(at..at + 2) {
            slot.copy_from_slice(&v.to_be_bytes());
        }
    }
}
