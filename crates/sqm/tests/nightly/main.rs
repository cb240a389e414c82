//! Every test of the lab, and those that take too long for each change: `make nightly`.

#[path = "../lab/main.rs"]
mod lab;

mod autorate;
mod daemon;
mod demo;
mod doctor;
mod faults;
mod files;
mod fleet;
mod guide;
mod measure;
mod rows;
mod scripts;
mod search;
mod setups;
mod shells;
mod traffic;
mod truth;
mod tune;
mod web;
