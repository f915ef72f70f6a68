mod antrea;
mod behaviour;
mod churn;
pub(super) mod objects;
mod tiered;
mod world;
