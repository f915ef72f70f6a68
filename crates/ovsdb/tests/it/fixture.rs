//! An ovsdb-server without a switch, and a blocking client.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use ovsdb::frame::Framer;
use ovsdb::monitor::{MONITOR_COND_SINCE, MonitorNotice, MonitorReply, Monitored, Update};
use ovsdb::replica::{Change, Replica};
use ovsdb::rpc::{Message, Request, Response};
use ovsdb::transaction::{OperationResult, Transaction, TransactionError};
use ovsdb::value::Uuid;
use serde_json::{Value, json};
use testkit::wait::{TIMEOUT, until};
use testkit::{Process, Scratch};

const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// A database with the schema of Open vSwitch and one row, the root.
pub(crate) struct Server {
    _process: Process,
    dir: Scratch,
    pub(crate) root: Uuid,
}

impl Server {
    /// A standalone database, as every Node has: the server keeps no history, so a monitor never resumes.
    pub(crate) fn standalone() -> Self {
        Self::start(&["create"], &[])
    }

    /// A cluster of one server, which keeps the last transactions.
    pub(crate) fn clustered() -> Self {
        Self::start(&["create-cluster"], &["unix:raft.sock"])
    }

    fn start(create: &[&str], address: &[&str]) -> Self {
        let dir = Scratch::new().unwrap();
        let command = |program: &str| {
            let mut command = Command::new(program);
            command.current_dir(dir.path()).env("OVS_RUNDIR", dir.path()).stdout(Stdio::null()).stderr(Stdio::null());
            command
        };
        let created = command("ovsdb-tool").args(create).args(["conf.db", SCHEMA]).args(address).status().unwrap();
        assert!(created.success());
        let mut server = command("ovsdb-server");
        server.args(["conf.db", "--remote=punix:db.sock", "--unixctl=ctl", "--no-chdir", "-vconsole:off"]);
        let mut server = Self { _process: Process::spawn(server).unwrap(), dir, root: Uuid::NIL };
        server.root = until("a server that takes transactions", TIMEOUT, || {
            let mut transaction = Transaction::new();
            let root = transaction.insert_row("Open_vSwitch", [].into());
            let results = Client::try_new(server.socket())?.transact(&transaction).ok()?;
            OperationResult::inserted(&results, &root)
        })
        .unwrap();
        server
    }

    pub(crate) fn connect(&self) -> Client {
        Client::try_new(self.socket()).unwrap()
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("db.sock")
    }
}

/// One connection. Notifications that arrive while a reply is awaited are kept.
pub(crate) struct Client {
    stream: UnixStream,
    framer: Framer,
    notices: Vec<MonitorNotice>,
    last_id: u64,
}

impl Client {
    fn try_new(socket: PathBuf) -> Option<Self> {
        let stream = UnixStream::connect(socket).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        Some(Self { stream, framer: Framer::default(), notices: vec![], last_id: 0 })
    }

    pub(crate) fn send(&mut self, message: impl Into<Message>) {
        self.stream.write_all(&message.into().to_bytes()).unwrap();
    }

    pub(crate) fn call(&mut self, method: &str, params: Vec<Value>) -> Result<Value, Value> {
        self.last_id += 1;
        self.send(Request::new(self.last_id, method, params));
        loop {
            if let Some(Response { id, outcome }) = self.step() {
                assert_eq!(id, json!(self.last_id));
                return outcome;
            }
        }
    }

    pub(crate) fn transact(&mut self, transaction: &Transaction) -> Result<Vec<OperationResult>, TransactionError> {
        let outcome = self.call("transact", transaction.encode(ovsdb::OPEN_VSWITCH));
        transaction.decode_reply(outcome)
    }

    /// The reply to a monitor that resumes where the replica is.
    pub(crate) fn monitor(&mut self, replica: &Replica) -> MonitorReply {
        let params = replica.monitored().encode(ovsdb::OPEN_VSWITCH, &json!("m"), replica.last_transaction());
        MonitorReply::decode(&self.call(MONITOR_COND_SINCE, params).unwrap()).unwrap()
    }

    /// All changes so far: the server sends updates of a transaction before the reply to a later request.
    pub(crate) fn follow(&mut self, replica: &mut Replica) -> Vec<Change> {
        self.call("echo", vec![]).unwrap();
        let notices = std::mem::take(&mut self.notices);
        notices.into_iter().flat_map(|notice| replica.apply_update(update_of(notice)).unwrap()).collect()
    }

    pub(crate) fn notices(&mut self) -> Vec<MonitorNotice> {
        self.call("echo", vec![]).unwrap();
        std::mem::take(&mut self.notices)
    }

    fn step(&mut self) -> Option<Response> {
        let value = loop {
            if let Some(value) = self.framer.next_value().unwrap() {
                break value;
            }
            let mut chunk = [0; 4096];
            let n = self.stream.read(&mut chunk).unwrap();
            assert!(n > 0, "the server closed the connection");
            self.framer.push(&chunk[..n]);
        };
        match Message::decode(value).unwrap() {
            Message::Response(response) => return Some(response),
            Message::Notification(notification) => self.notices.extend(MonitorNotice::decode(&notification).unwrap()),
            Message::Request(request) => self.send(request.echo_reply().unwrap()),
        }
        None
    }
}

/// The reply to a client without any rows.
pub(crate) fn fresh(server: &Server, monitored: Arc<Monitored>) -> Replica {
    let mut replica = Replica::new(monitored);
    let reply = server.connect().monitor(&replica);
    replica.apply_reply(reply).unwrap();
    replica
}

fn update_of(notice: MonitorNotice) -> Update {
    match notice {
        MonitorNotice::Update(update) => update,
        MonitorNotice::Cancelled { .. } => panic!("the monitor was cancelled"),
    }
}
