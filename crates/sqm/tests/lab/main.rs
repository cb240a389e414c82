//! Tests that need a real kernel. They are one program, so that its guests share the processors well.

mod autorate;
mod daemon;
mod doctor;
mod end;
mod faults;
mod files;
mod measure;
mod output;
mod pppoe;
mod rows;
mod scripts;
mod search;
mod setup;
mod setups;
mod shape;
mod shared;
mod traffic;
mod truth;
mod tune;
mod twins;
mod web;
