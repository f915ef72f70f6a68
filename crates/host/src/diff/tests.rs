use super::*;

const GATEWAY: &str = "antrea-gw0";

fn address(net: &str) -> Address {
    Address { device: GATEWAY.into(), net: net.parse().unwrap() }
}

fn route(destination: &str, via: &str) -> Route {
    Route::onlink(destination.parse().unwrap(), via.parse().unwrap(), GATEWAY)
}

fn neighbour(ip: &str, last: u8) -> Neighbour {
    Neighbour { device: GATEWAY.into(), ip: ip.parse().unwrap(), mac: types::Mac([0xaa, 0, 0, 0, 0, last]) }
}

fn desired() -> Desired {
    Desired {
        links: [(GATEWAY.to_owned(), Link { up: true, mtu: Some(1450), mac: None })].into(),
        addresses: [address("10.10.0.1/24")].into(),
        routes: [route("10.10.1.0/24", "10.10.1.1"), route("10.10.2.0/24", "10.10.2.1")].into(),
        neighbours: [neighbour("10.10.1.1", 1)].into(),
        sysctls: [(format!("net/ipv4/conf/{GATEWAY}/arp_announce"), "1".to_owned())].into(),
        firewall: Some(types::host::Firewall { gateway: GATEWAY.into(), ..Default::default() }),
        ..Desired::default()
    }
}

/// The observed state when everything is as desired.
fn settled(desired: &Desired) -> Observed {
    Observed {
        links: desired.links.clone(),
        addresses: desired.addresses.clone(),
        routes: desired.routes.clone(),
        neighbours: desired.neighbours.clone(),
        rules: desired.rules.clone(),
        merging: std::collections::BTreeSet::new(),
        sysctls: desired.sysctls.clone(),
        firewall_intact: true,
    }
}

#[test]
fn equal_state_needs_no_changes() {
    let desired = desired();
    assert_eq!(diff(&desired, &settled(&desired), true), []);
}

#[test]
fn changes_are_ordered_by_dependency() {
    let desired = desired();
    let link = Link { up: false, mtu: Some(1500), mac: Some(types::Mac([2; 6])) };
    let observed = Observed { links: [(GATEWAY.to_owned(), link)].into(), ..Observed::default() };
    let expected = [
        // A guard is installed before the path that it protects.
        Op::ReplaceFirewall(Box::new(desired.firewall.clone().unwrap())),
        Op::SetSysctl("net/ipv4/conf/antrea-gw0/arp_announce".into(), "1".into()),
        Op::SetLink(GATEWAY.into(), Link { up: true, mtu: Some(1450), mac: None }),
        Op::AddAddress(address("10.10.0.1/24")),
        Op::PutNeighbour(neighbour("10.10.1.1", 1)),
        Op::PutRoute(route("10.10.1.0/24", "10.10.1.1")),
        Op::PutRoute(route("10.10.2.0/24", "10.10.2.1")),
    ];
    assert_eq!(diff(&desired, &observed, false), expected);
}

#[test]
fn only_different_settings_of_a_device_are_set() {
    let mut desired = desired();
    desired.links.get_mut(GATEWAY).unwrap().mac = Some(types::Mac([2; 6]));
    let mut observed = settled(&desired);
    observed.links.get_mut(GATEWAY).unwrap().mtu = Some(9000);
    let change = Link { up: true, mtu: Some(1450), mac: None };
    assert_eq!(diff(&desired, &observed, false), [Op::SetLink(GATEWAY.into(), change)]);
}

#[test]
fn a_missing_device_only_gets_its_link_settings() {
    let desired = desired();
    let observed = Observed { firewall_intact: true, ..Observed::default() };
    let link = desired.links.get(GATEWAY).unwrap().clone();
    assert_eq!(diff(&desired, &observed, true), [Op::SetLink(GATEWAY.into(), link)]);
}

#[test]
fn a_route_to_the_same_destination_is_replaced_and_not_removed() {
    let desired = desired();
    let mut observed = settled(&desired);
    observed.routes = [route("10.10.1.0/24", "10.10.1.99"), route("10.10.2.0/24", "10.10.2.1")].into();
    observed.neighbours = [neighbour("10.10.1.1", 99)].into();
    let expected = [Op::PutNeighbour(neighbour("10.10.1.1", 1)), Op::PutRoute(route("10.10.1.0/24", "10.10.1.1"))];
    assert_eq!(diff(&desired, &observed, true), expected);
}

#[test]
fn destinations_are_compared_as_the_kernel_writes_them() {
    let mut desired = desired();
    let observed = settled(&desired);
    desired.routes = [route("10.10.1.7/24", "10.10.1.1"), route("10.10.2.0/24", "10.10.2.1")].into();
    assert_eq!(diff(&desired, &observed, true), []);
}

#[test]
fn stale_objects_stay_until_the_sweep_is_allowed() {
    let desired = desired();
    let mut observed = settled(&desired);
    let rule = types::host::RoutingRule {
        priority: 300,
        ipv6: false,
        device: GATEWAY.into(),
        mark: 0x800,
        mask: 0x800,
        table: 300,
    };
    observed.routes.insert(route("10.10.9.0/24", "10.10.9.1"));
    observed.neighbours.insert(neighbour("10.10.9.1", 9));
    observed.rules.insert(rule.clone());
    assert_eq!(diff(&desired, &observed, false), []);
    let expected = [
        Op::RemoveRule(rule),
        Op::RemoveRoute(route("10.10.9.0/24", "10.10.9.1")),
        Op::RemoveNeighbour(neighbour("10.10.9.1", 9)),
    ];
    assert_eq!(diff(&desired, &observed, true), expected);
}

#[test]
fn a_route_to_a_cleared_address_is_removed_without_a_sweep() {
    let mut desired = desired();
    let mut observed = settled(&desired);
    let (around, exact) = (route("192.168.0.0/16", "10.10.9.1"), route("192.168.1.1/32", "169.254.0.253"));
    let elsewhere = Route { table: 300, ..route("0.0.0.0/0", "10.10.9.1") };
    observed.routes.extend([around.clone(), exact.clone(), elsewhere, route("10.10.9.0/24", "10.10.9.1")]);
    desired.clear = ["192.168.1.1", "fd00::1"].map(|ip| ip.parse().unwrap()).into();
    let removed = [Op::RemoveRoute(around.clone()), Op::RemoveRoute(exact.clone())];
    assert_eq!(diff(&desired, &observed, false), removed);
    // A desired route to such an address stays.
    desired.routes.insert(around);
    assert_eq!(diff(&desired, &observed, false), [Op::RemoveRoute(exact)]);
}

#[test]
fn routes_that_the_kernel_drops_with_an_address_are_restored() {
    let desired = desired();
    let mut observed = settled(&desired);
    observed.addresses.insert(address("10.10.0.9/24"));
    let expected = [
        Op::RemoveAddress(address("10.10.0.9/24")),
        Op::AddAddress(address("10.10.0.1/24")),
        Op::PutNeighbour(neighbour("10.10.1.1", 1)),
        Op::PutRoute(route("10.10.1.0/24", "10.10.1.1")),
        Op::PutRoute(route("10.10.2.0/24", "10.10.2.1")),
    ];
    assert_eq!(diff(&desired, &observed, true), expected);
}

#[test]
fn firewall_rules_stay_until_the_desired_ones_are_known() {
    let mut desired = desired();
    desired.firewall = None;
    let observed = Observed { firewall_intact: false, ..settled(&desired) };
    assert_eq!(diff(&desired, &observed, true), []);
}
