//! Turns the text of flows and groups into OpenFlow messages and back, and messages into something to read.

use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::process::ExitCode;

use anyhow::{Context, Result, anyhow, bail, ensure};
use openflow::flow::{ALL_TABLES, Flow, FlowCommand, FlowMod};
use openflow::framer::Framer;
use openflow::group::{Group, GroupMod};
use openflow::message::Message;
use openflow::multipart::{MultipartReply, ReplyBody};

const HELP: &str = "\
Reads and writes OpenFlow 1.5 as Open vSwitch speaks it.

usage: ofp encode [--group] [FILE]   text of flows (or groups), one a line -> hex of a message, one a line
       ofp decode [FILE]             hex of messages -> the text of the flows and groups in them, one a line
       ofp print [FILE]              hex of messages -> what they say, for people

Without FILE, or with -, standard input is read. Empty lines and those that start with # are passed over. A flow may have
one of add, modify, modify_strict, delete, delete_strict before it, and a group one of add, modify, add_or_mod, delete.

examples:
  echo 'table=1,priority=190,ip,nw_src=10.0.0.0/24,actions=conjunction(7,1/2)' | ofp encode
  echo 'group_id=5,type=select,bucket=weight:3,actions=output:1' | ofp encode --group
  echo 'table=0,priority=5,arp,actions=NORMAL' | ofp encode | ofp decode
  ofp encode flows.txt | ofp print
  echo '06 14 00 08 00 00 00 07' | ofp print
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let output = match run(&args) {
        Ok(output) => output,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "ofp: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    // A reader that has seen enough is no failure.
    let _ = std::io::stdout().write_all(output.as_bytes());
    ExitCode::SUCCESS
}

fn run(args: &[&str]) -> Result<String> {
    match args {
        [] | ["help" | "-h" | "--help", ..] | [_, "-h" | "--help"] => Ok(HELP.to_owned()),
        ["encode", "--group", file @ ..] => each_line(file, |line, out| encode(&group_mod(line)?, out)),
        ["encode", file @ ..] => each_line(file, |line, out| encode(&flow_mod(line)?, out)),
        ["decode", file @ ..] => each_line(file, |line, out| each_message(line, |_, message| texts(&message, out))),
        ["print", file @ ..] => {
            each_line(file, |line, out| each_message(line, |xid, message| Ok(writeln!(out, "{}", message.line(xid))?)))
        }
        [other, ..] => bail!("`{other}` is none of encode, decode, print; ofp --help tells more"),
    }
}

/// Runs `each` for every line that says something; an error names the line.
fn each_line(file: &[&str], mut each: impl FnMut(&str, &mut String) -> Result<()>) -> Result<String> {
    let (name, input) = match file {
        [] | ["-"] => {
            let mut input = String::new();
            std::io::stdin().read_to_string(&mut input).context("standard input")?;
            ("standard input", input)
        }
        [name] => (*name, std::fs::read_to_string(name).with_context(|| (*name).to_owned())?),
        [_, more, ..] => bail!("`{more}`: only one file can be read"),
    };
    let mut out = String::new();
    for (number, line) in (1..).zip(input.lines()) {
        let line = line.trim();
        if !line.is_empty() && !line.starts_with('#') {
            each(line, &mut out).with_context(|| format!("{name}: line {number}"))?;
        }
    }
    Ok(out)
}

fn flow_mod(line: &str) -> Result<Message> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let (command, text) = match word {
        "add" => (FlowCommand::Add, rest),
        "modify" => (FlowCommand::Modify, rest),
        "modify_strict" => (FlowCommand::ModifyStrict, rest),
        "delete" => (FlowCommand::Delete, rest),
        "delete_strict" => (FlowCommand::DeleteStrict, rest),
        _ => (FlowCommand::Add, line),
    };
    let flow: Flow = match command {
        FlowCommand::Add | FlowCommand::Modify | FlowCommand::ModifyStrict => text.parse()?,
        // As with ovs-ofctl: from all tables unless one is named. And what is to go needs no actions.
        FlowCommand::Delete | FlowCommand::DeleteStrict => format!("table={ALL_TABLES},{text} actions=drop").parse()?,
    };
    Ok(Message::FlowMod(Box::new(FlowMod::new(command, flow))))
}

fn group_mod(line: &str) -> Result<Message> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    Ok(Message::GroupMod(match word {
        "modify" => GroupMod::Modify(rest.parse()?),
        "add_or_mod" => GroupMod::AddOrModify(rest.parse()?),
        "delete" => {
            let id = rest.trim().strip_prefix("group_id=").and_then(|id| id.parse().ok());
            GroupMod::Delete(id.ok_or_else(|| anyhow!("`{rest}`: needs group_id=NUMBER and nothing else"))?)
        }
        "add" => GroupMod::Add(rest.parse()?),
        _ => GroupMod::Add(line.parse::<Group>()?),
    }))
}

fn encode(message: &Message, out: &mut String) -> Result<()> {
    let mut bytes = Vec::new();
    message.encode(1, &mut bytes)?;
    for byte in bytes {
        write!(out, "{byte:02x}")?;
    }
    out.push('\n');
    Ok(())
}

/// Runs `each` for every message of a line in hexadecimal digits.
fn each_message(line: &str, mut each: impl FnMut(u32, Message) -> Result<()>) -> Result<()> {
    let digits: Vec<u8> = line
        .chars()
        .filter(|c| !c.is_whitespace() && *c != '.' && *c != ':')
        .map(|c| {
            c.to_digit(16).and_then(|d| u8::try_from(d).ok()).ok_or_else(|| anyhow!("`{c}`: is no hexadecimal digit"))
        })
        .collect::<Result<_>>()?;
    let (pairs, odd) = digits.as_chunks::<2>();
    ensure!(odd.is_empty(), "odd number of hexadecimal digits");
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    let mut framer = Framer::new();
    framer.feed(&bytes);
    while let Some(bytes) = framer.next_message()? {
        let (xid, message) = Message::decode(bytes)?;
        each(xid, message)?;
    }
    ensure!(framer.pending() == 0, "{} bytes at the end are not a whole message", framer.pending());
    Ok(())
}

/// Writes the flows and groups that a message holds.
fn texts(message: &Message, out: &mut String) -> Result<()> {
    match message {
        Message::FlowMod(change) => {
            let word = match change.command {
                FlowCommand::Add => "",
                FlowCommand::Modify => "modify ",
                FlowCommand::ModifyStrict => "modify_strict ",
                FlowCommand::Delete => "delete ",
                FlowCommand::DeleteStrict => "delete_strict ",
            };
            let text = change.flow.to_string();
            let deletes = matches!(change.command, FlowCommand::Delete | FlowCommand::DeleteStrict);
            let text = text.strip_suffix(" actions=drop").filter(|_| deletes).unwrap_or(&text);
            writeln!(out, "{word}{text}")?;
        }
        Message::GroupMod(GroupMod::Add(group)) => writeln!(out, "{group}")?,
        Message::GroupMod(GroupMod::Modify(group)) => writeln!(out, "modify {group}")?,
        Message::GroupMod(GroupMod::AddOrModify(group)) => writeln!(out, "add_or_mod {group}")?,
        Message::GroupMod(GroupMod::Delete(id)) => writeln!(out, "delete group_id={id}")?,
        Message::BundleAdd(add) => texts(&Message::decode(&add.message)?.1, out)?,
        Message::MultipartReply(MultipartReply { body: ReplyBody::Flow(flows), .. }) => {
            flows.iter().try_for_each(|stats| writeln!(out, "{}", stats.flow))?;
        }
        Message::MultipartReply(MultipartReply { body: ReplyBody::GroupDesc(groups), .. }) => {
            groups.iter().try_for_each(|group| writeln!(out, "{group}"))?;
        }
        other => bail!("{} holds no flows or groups; try ofp print", other.name()),
    }
    Ok(())
}
