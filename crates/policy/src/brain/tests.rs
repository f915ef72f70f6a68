mod behaviour;
mod churn;
mod world;
