//! Plugin and agent understand the messages of earlier versions: antrea-cni is replaced when the agent starts, so for a moment they
//! differ.

use super::wire;
use super::{
    Attachment, AttachmentId, Call, Code, ContainerId, Dns, Error, Interface, InterfaceName, Pod, Release, Route,
};
use crate::recorded::Recorded;

fn id() -> AttachmentId {
    AttachmentId {
        container: ContainerId::new("9f2c51b0e3d84a6f").unwrap(),
        ifname: InterfaceName::new("eth0").unwrap(),
    }
}

fn attachment() -> Attachment {
    let host =
        Interface { name: "web-1-7a0e4d".to_owned(), mac: "0a:00:00:00:00:01".to_owned(), ..Interface::default() };
    let container = Interface {
        name: "eth0".to_owned(),
        mac: "0a:00:00:00:00:02".to_owned(),
        sandbox: "/var/run/netns/cni-1".to_owned(),
        mtu: Some(1450),
    };
    let ips = [
        ("10.10.1.7/24".parse().unwrap(), Some("10.10.1.1".parse().unwrap())),
        ("fd00:10:10:1::7/64".parse().unwrap(), None),
    ];
    let routes = vec![
        Route {
            destination: "0.0.0.0/0".parse().unwrap(),
            gateway: Some("10.10.1.1".parse().unwrap()),
            mtu: Some(1400),
        },
        Route { destination: "fd00::/8".parse().unwrap(), gateway: None, mtu: None },
    ];
    let dns = Dns {
        nameservers: vec!["10.96.0.10".to_owned()],
        domain: "cluster.local".to_owned(),
        search: vec!["svc.cluster.local".to_owned()],
        options: vec!["ndots:5".to_owned()],
    };
    Attachment { routes, dns, ..Attachment::of_pair(host, container, ips) }
}

fn call(previous: Option<Attachment>) -> Call {
    Call {
        id: id(),
        network: "antrea".to_owned(),
        netns: "/var/run/netns/cni-1".to_owned(),
        pod: Pod::new("shop", "web-1", "0c2d8a9e-2a83-4a57-8f7e-5b0f3f1c9d11").unwrap(),
        mtu: Some(1400),
        previous,
    }
}

#[test]
fn requests_of_version_1_are_read_and_written() {
    let add = call(Some(attachment()));
    let recorded = Recorded { file: "v1/cni/add.bin", message: "antrea.cni.v1.AddRequest" };
    recorded.is_written(&wire::AddRequest { call: Some((&add).into()) });
    recorded.reads(&add, |request| super::convert::add(request).unwrap());

    let check = (call(None), attachment());
    let recorded = Recorded { file: "v1/cni/check.bin", message: "antrea.cni.v1.CheckRequest" };
    recorded.is_written(&wire::CheckRequest { call: Some((&check.0).into()), expected: Some((&check.1).into()) });
    recorded.reads(&check, |request| super::convert::check(request).unwrap());

    let release = Release { id: id(), netns: Some("/var/run/netns/cni-1".to_owned()), pod: Some(call(None).pod) };
    let recorded = Recorded { file: "v1/cni/del.bin", message: "antrea.cni.v1.DelRequest" };
    recorded.is_written(&wire::DelRequest::from(&release));
    recorded.reads(&release, |request: wire::DelRequest| Release::try_from(request).unwrap());

    let valid = vec![id()];
    let recorded = Recorded { file: "v1/cni/gc.bin", message: "antrea.cni.v1.GcRequest" };
    recorded.is_written(&wire::GcRequest { valid: valid.iter().map(Into::into).collect() });
    recorded.reads(&valid, |request| super::convert::gc(request).unwrap());
}

#[test]
fn replies_of_version_1_are_read_and_written() {
    let error =
        || Error::new(Code::Rpc, "the network of this Node is not ready").with_details("see the log of antrea-agent");
    for (file, outcome) in [("v1/cni/added.bin", Ok(attachment())), ("v1/cni/not-added.bin", Err(error()))] {
        let recorded = Recorded { file, message: "antrea.cni.v1.AddReply" };
        recorded.is_written(&wire::AddReply::from(outcome.clone()));
        recorded.reads(&outcome, |reply: wire::AddReply| reply.into());
    }
    let recorded = Recorded { file: "v1/cni/failed.bin", message: "antrea.cni.v1.Done" };
    recorded.is_written(&wire::Done::from(Err(error())));
    recorded.reads(&Err(error()), |done: wire::Done| Result::<(), Error>::from(done));
}
