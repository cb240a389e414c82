//! What only a real kernel can tell, in one program: its guests fill each processor with what the others leave.

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
