//! The pipelines against their specification.

#[cfg(test)]
mod compilers;
#[cfg(test)]
mod golden;
