//! Header blocks: one zlib stream for each direction of a connection, with a dictionary that the protocol defines.

use std::collections::BTreeMap;
use std::io;
use std::sync::LazyLock;

use miniz_oxide::inflate::TINFLStatus;
use miniz_oxide::inflate::core::inflate_flags::TINFL_FLAG_HAS_MORE_INPUT;
use miniz_oxide::inflate::core::{DecompressorOxide, TINFL_LZ_DICT_SIZE, decompress};

use super::invalid;

/// Header names in lower case, and their values.
pub(crate) type Headers = BTreeMap<String, String>;

/// Maximum size of a header block after decompression. Those of Kubernetes have less than 100 bytes.
const MAX_BLOCK: usize = 64 * 1024;
/// The words of the dictionary that have a length in front of them.
const NAMES: &str = "options head post put delete trace accept accept-charset accept-encoding accept-language accept-ranges \
    age allow authorization cache-control connection content-base content-encoding content-language content-length \
    content-location content-md5 content-range content-type date etag expect expires from host if-match \
    if-modified-since if-none-match if-range if-unmodified-since last-modified location max-forwards pragma \
    proxy-authenticate proxy-authorization range referer retry-after server te trailer transfer-encoding upgrade \
    user-agent vary via warning www-authenticate method get status 200_OK version HTTP/1.1 url public set-cookie \
    keep-alive origin";
const VALUES: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
    203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden\
    404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug \
    Sept Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
    application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdch\
    charset=utf-8charset=iso-8859-1,utf-,*,enq=0.";
/// Of a zlib stream with a window of 32 KiB and a dictionary; a multiple of 31.
const ZLIB_HEADER: [u8; 2] = [0x78, 0x20];
/// Adler-32 of the dictionary.
const DICTIONARY_ID: [u8; 4] = [0xe3, 0xc6, 0xa7, 0xc2];

/// The dictionary of SPDY/3 (section 2.6.10.1 of its specification).
static DICTIONARY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut all = Vec::new();
    for name in NAMES.split(' ').map(|name| name.replace('_', " ")) {
        put(&mut all, &name);
    }
    all.extend(VALUES.as_bytes());
    all
});

/// Appends a length and a text.
fn put(to: &mut Vec<u8>, text: &str) {
    to.extend(u32::try_from(text.len()).unwrap_or(u32::MAX).to_be_bytes());
    to.extend(text.as_bytes());
}

/// Decompresses the header blocks that a connection receives.
pub(crate) struct HeaderReader {
    inflate: Box<DecompressorOxide>,
    /// A ring with the last 32 KiB, to which compressed data refers; at first, the dictionary.
    window: Vec<u8>,
    at: usize,
    begun: bool,
}

impl HeaderReader {
    pub(crate) fn new() -> Self {
        let mut window = DICTIONARY.clone();
        let at = window.len();
        window.resize(TINFL_LZ_DICT_SIZE, 0);
        Self { inflate: Box::default(), window, at, begun: false }
    }

    /// The headers of a block. After an error, the connection cannot be used.
    pub(crate) fn read(&mut self, mut block: &[u8]) -> io::Result<Headers> {
        if !self.begun {
            block = after_zlib_header(block)?;
            self.begun = true;
        }
        let mut text = Vec::new();
        loop {
            let (status, read, written) =
                decompress(&mut self.inflate, block, &mut self.window, self.at, TINFL_FLAG_HAS_MORE_INPUT);
            text.extend_from_slice(self.window.get(self.at..self.at + written).unwrap_or_default());
            self.at = (self.at + written) % self.window.len();
            block = block.get(read..).unwrap_or_default();
            if text.len() > MAX_BLOCK {
                return Err(invalid("a header block is too long"));
            }
            match status {
                TINFLStatus::HasMoreOutput => {}
                TINFLStatus::NeedsMoreInput => return parse(&text).ok_or_else(|| invalid("a header block is damaged")),
                _ => return Err(invalid("a header block cannot be decompressed")),
            }
        }
    }
}

/// The rest after the zlib header (RFC 1950, section 2.2) of a stream with the dictionary.
fn after_zlib_header(block: &[u8]) -> io::Result<&[u8]> {
    match block {
        [method, flags, rest @ ..]
            if method & 0x0f == 8
                && u16::from_be_bytes([*method, *flags]).is_multiple_of(31)
                && flags & 0x20 != 0
                && rest.starts_with(&DICTIONARY_ID) =>
        {
            Ok(rest.get(DICTIONARY_ID.len()..).unwrap_or_default())
        }
        _ => Err(invalid("the header blocks are not compressed with the dictionary of SPDY/3")),
    }
}

fn parse(mut block: &[u8]) -> Option<Headers> {
    let mut headers = Headers::new();
    let count = number(&mut block)?;
    for _ in 0..count {
        let name = text(&mut block)?.to_lowercase();
        headers.insert(name, text(&mut block)?);
    }
    Some(headers)
}

fn number(block: &mut &[u8]) -> Option<u32> {
    let (digits, rest) = block.split_first_chunk()?;
    *block = rest;
    Some(u32::from_be_bytes(*digits))
}

fn text(block: &mut &[u8]) -> Option<String> {
    let length = usize::try_from(number(block)?).ok()?;
    let (text, rest) = block.split_at_checked(length)?;
    *block = rest;
    String::from_utf8(text.to_vec()).ok()
}

/// Writes the header blocks that a connection sends. They are stored, not compressed: replies have no headers.
#[derive(Default)]
pub(crate) struct HeaderWriter {
    begun: bool,
}

impl HeaderWriter {
    /// The header block of a frame; the first one has the zlib header.
    pub(crate) fn write(&mut self, headers: &Headers) -> Vec<u8> {
        let mut text = u32::try_from(headers.len()).unwrap_or(u32::MAX).to_be_bytes().to_vec();
        for (name, value) in headers {
            put(&mut text, name);
            put(&mut text, value);
        }
        let mut block = Vec::new();
        if !self.begun {
            block.extend(ZLIB_HEADER);
            block.extend(DICTIONARY_ID);
            self.begun = true;
        }
        // An empty stored block at the end makes the receiver return what it has (RFC 1951, section 3.2.4).
        for part in text.chunks(usize::from(u16::MAX)).chain([&[][..]]) {
            let length = u16::try_from(part.len()).unwrap_or_default();
            block.push(0);
            block.extend(length.to_le_bytes());
            block.extend((!length).to_le_bytes());
            block.extend(part);
        }
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn the_dictionary_has_the_length_of_the_specification() {
        assert_eq!(DICTIONARY.len(), 1423);
        let (mut a, mut b) = (1_u32, 0_u32);
        for byte in DICTIONARY.iter() {
            a = (a + u32::from(*byte)) % 65521;
            b = (b + a) % 65521;
        }
        assert_eq!((b << 16 | a).to_be_bytes(), DICTIONARY_ID);
    }

    #[test]
    fn blocks_that_zlib_has_compressed_are_read() {
        // Written by zlib 1.2 at level 9: the second block refers to the first one.
        let blocks = [
            "78f9e3c6a7c202253a703a2b294a4dcc851625aca9a0808614cb45a024cc64610024398b209198094adc8c0600000000ffff",
            "c2aa15540a2512d209000000ffff",
        ];
        let mut reader = HeaderReader::new();
        for (block, kind) in blocks.iter().zip(["error", "data"]) {
            let expected = headers(&[("streamtype", kind), ("port", "80"), ("requestid", "0")]);
            assert_eq!(reader.read(&hex(block)).unwrap(), expected);
        }
    }

    #[test]
    fn a_block_for_another_dictionary_is_an_error() {
        for block in ["78f9e3c6a7c3", "789c", "", "78", "78bb", "ffffe3c6a7c2"] {
            assert!(HeaderReader::new().read(&hex(block)).is_err(), "{block}");
        }
    }

    #[test]
    fn a_block_that_grows_without_end_is_an_error() {
        // A stored block of 64 KiB, twice.
        let mut block = hex("78bbe3c6a7c2");
        for _ in 0..2 {
            block.extend([0, 0xff, 0xff, 0, 0]);
            block.resize(block.len() + 0xffff, 0);
        }
        assert!(HeaderReader::new().read(&block).is_err());
    }

    proptest! {
        #[test]
        fn blocks_are_read_as_they_were_written(blocks in proptest::collection::vec(
            proptest::collection::btree_map("[a-z]{1,9}", ".{0,40}", 0..5), 1..60,
        )) {
            let (mut writer, mut reader) = (HeaderWriter::default(), HeaderReader::new());
            for block in blocks {
                prop_assert_eq!(reader.read(&writer.write(&block)).unwrap(), block);
            }
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes: Vec<u8>) {
            let _ = HeaderReader::new().read(&[&hex("78bbe3c6a7c2"), bytes.as_slice()].concat());
            let _ = HeaderReader::new().read(&bytes);
        }
    }
}
