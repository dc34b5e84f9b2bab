//! Two gateways with a carrier that loses, repeats, delays and reorders frames, or is cut, and
//! gateways that carry many lanes. Each run checks that sent = acknowledged + in doubt + unsent,
//! that what is acknowledged was received, in order, that an end is reported in bounded time, and
//! that neither memory nor descriptors grow.

#[macro_use]
#[path = "../../../../tontine/tests/alone/mod.rs"]
mod alone;
mod frames;
#[path = "../hosts/mod.rs"]
mod hosts;
mod many_lanes;
mod partitions;
mod run;
