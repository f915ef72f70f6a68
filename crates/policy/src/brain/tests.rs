mod behaviour;
mod churn;
pub(super) mod objects;
mod world;
