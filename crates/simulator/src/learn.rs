//! The flow that a `learn` action creates from a packet.

use openflow::action::{Action, Learn, LearnSource, LearnSpec, Subfield};
use openflow::field::Field;
use openflow::flow::{Flow, FlowFlags};
use openflow::matching::Match;
use openflow::port::Port;

use crate::fields::{View, low, wide_port};

/// The flow that the action creates from the packet. The shorter timeouts after a FIN are not modelled.
pub(crate) fn learned_flow(learn: &Learn, view: &View) -> Flow {
    let mut flow = Flow::at(learn.table, learn.priority).cookie(learn.cookie);
    flow.idle_timeout = learn.idle_timeout;
    flow.hard_timeout = learn.hard_timeout;
    flow.flags.set(FlowFlags::SEND_FLOW_REM, learn.send_flow_rem);
    for spec in &learn.specs {
        match *spec {
            LearnSpec::Match { dst, src } => add_condition(&mut flow.matches, dst, value(view, src)),
            LearnSpec::Load { dst, src } => flow.actions.push(Action::load(dst, value(view, src))),
            LearnSpec::Output(src) => {
                let port = wide_port(low(view.get_bits(src)));
                if port.0 < Port::MAX.0 || [Port::IN_PORT, Port::FLOOD, Port::LOCAL, Port::ALL].contains(&port) {
                    flow.actions.push(Action::Output(port));
                }
            }
        }
    }
    flow
}

fn value(view: &View, src: LearnSource) -> u128 {
    match src {
        LearnSource::Field(bits) => view.get_bits(bits),
        LearnSource::Value(value) => value,
    }
}

fn add_condition(matches: &mut Match, dst: Subfield, value: u128) {
    let field = dst.field();
    if field == Field::InPort {
        return matches.set(field, u128::from(wide_port(low(value)).0), field.full_mask());
    }
    // A wide register is stored as 32-bit registers, which may have conditions on other bits.
    let (mut old, mut mask) = (0, 0);
    for (other, other_value, other_mask) in matches.fields() {
        if other == field {
            (old, mask) = (other_value, other_mask);
        }
    }
    let bits = value << dst.offset() & dst.mask();
    matches.set(field, old & !dst.mask() | bits, mask | dst.mask());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_learned_flow_loads_values_of_the_packet() {
        let action: Action = "learn(table=40,hard_timeout=300,priority=200,cookie=0x9,eth_type=0x800,nw_proto=6,\
                              NXM_OF_TCP_DST[],NXM_OF_IP_DST[],NXM_OF_IP_SRC[],load:NXM_NX_REG3[]->NXM_NX_REG3[],\
                              load:NXM_NX_REG4[0..15]->NXM_NX_REG4[0..15],load:0x2->NXM_NX_REG4[16..18],\
                              output:NXM_OF_IN_PORT[])"
            .parse()
            .unwrap();
        let Action::Learn(learn) = action else { panic!() };
        let mut view = View::of(&"in_port=7,tcp,nw_src=10.0.0.1,nw_dst=10.96.0.1,tp_dst=80".parse().unwrap());
        view.meta.regs[3] = 0x0a0a_0002;
        view.meta.regs[4] = 0x3_1f90;
        let expected: Flow =
            "table=40,cookie=0x9,hard_timeout=300,priority=200,tcp,nw_src=10.0.0.1,nw_dst=10.96.0.1,tp_dst=80 \
                              actions=load:0xa0a0002->NXM_NX_REG3[],load:0x1f90->NXM_NX_REG4[0..15],\
                              load:0x2->NXM_NX_REG4[16..18],output:7"
                .parse()
                .unwrap();
        assert_eq!(learned_flow(&learn, &view), expected);
    }
}
