//! The fuzz properties: on inputs that once broke them, and on valid messages with a few bytes changed.

#[expect(unreachable_pub, reason = "the fuzz target uses it from outside")]
#[path = "../../../../fuzz/properties/jsonrpc.rs"]
mod jsonrpc;
#[expect(unreachable_pub, reason = "the fuzz target uses it from outside")]
#[path = "../../../../fuzz/properties/ovsdb.rs"]
mod ovsdb_stream;

use std::fs;
use std::path::Path;

use ovsdb::value::Uuid;

/// Inputs that a fuzzer found, kept for good.
fn replay(name: &str, check: fn(&[u8])) {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/regressions").join(name);
    let Ok(files) = fs::read_dir(dir) else { return };
    for file in files.map(|file| file.unwrap().path()).filter(|path| path.is_file()) {
        check(&fs::read(&file).unwrap());
    }
}

/// A small generator of numbers, the same in each run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 1).unwrap() % below.max(1)
    }
}

fn mutate(dice: &mut Dice, seed: &[u8]) -> Vec<u8> {
    const TOKENS: [&str; 12] =
        ["{", "}", "[", "]", "\"", ",", ":", "null", "1e9", "-1", "[\"set\",[]]", "[\"map\",[]]"];
    let mut bytes = seed.to_vec();
    for _ in 0..=dice.roll(4) {
        let at = dice.roll(bytes.len());
        let to = (at + dice.roll(20)).min(bytes.len());
        match dice.roll(5) {
            0 => bytes[at] = u8::try_from(dice.roll(256)).unwrap(),
            1 => drop(bytes.drain(at..to)),
            2 => {
                let copy = bytes[at..to].to_vec();
                let at = dice.roll(bytes.len());
                bytes.splice(at..at, copy);
            }
            3 => drop(bytes.splice(at..at, TOKENS[dice.roll(TOKENS.len())].bytes())),
            _ => bytes[at] ^= 1 << dice.roll(8),
        }
        if bytes.is_empty() {
            bytes.push(b'{');
        }
    }
    bytes
}

/// What a server sends: a monitor reply, updates, results, an error, a request.
fn streams() -> Vec<String> {
    let id = |n: u128| Uuid::from_bits(n).to_string();
    let (a, b, nil) = (id(1), id(2), id(0));
    let reply = format!(
        r#"{{"id":1,"error":null,"result":[false,"{nil}",{{"Bridge":{{"{a}":{{"initial":{{"name":"br0","ports":["set",[["uuid","{a}"],["uuid","{b}"]]],"external_ids":["map",[["k","v"]]]}}}}}},"Interface":{{"{b}":{{"initial":{{"name":"p0","ofport":1,"link_state":"up"}}}}}}}}]}}"#
    );
    let update = format!(
        r#"{{"id":null,"method":"update3","params":["m","{b}",{{"Bridge":{{"{a}":{{"modify":{{"ports":["uuid","{b}"],"external_ids":["map",[["k","w"]]],"fail_mode":"secure"}}}},"{b}":{{"insert":{{"name":"br0"}}}}}},"Interface":{{"{b}":{{"delete":null}}}}}}]}}"#
    );
    let results = format!(
        r#"{{"id":2,"result":[{{}},{{"count":1}},{{"rows":[{{"tag":["set",[]],"x":1.5}}]}},{{"uuid":["uuid","{a}"]}}],"error":null}}"#
    );
    let error = r#"{"id":3,"result":[{},{"error":"timed out","details":"\"wait\" \u00e9"},null],"error":null}"#;
    let request = r#"{"id":"echo","method":"echo","params":[]}["set",[1,2.5,"x",true]]"#;
    vec![format!("{reply}{update}{update}"), update, format!("{results}{error}"), request.to_owned(), reply]
}

fn bombard(check: fn(&[u8])) {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let streams = streams();
    for stream in &streams {
        check(stream.as_bytes());
    }
    for _ in 0..3000 {
        let stream = &streams[dice.roll(streams.len())];
        check(&mutate(&mut dice, stream.as_bytes()));
    }
}

#[test]
fn json_rpc_keeps_its_promises_on_any_bytes() {
    replay("jsonrpc", jsonrpc::check);
    bombard(jsonrpc::check);
}

#[test]
fn the_replica_keeps_its_promises_on_any_stream() {
    replay("ovsdb", ovsdb_stream::check);
    bombard(ovsdb_stream::check);
}
