//! The map of a heap as a picture: [`maps`], with a tile for each slab.
//!
//! A row is sixteen slabs, 1 MiB. The owners of its blocks fill a tile from below; the frame has
//! the colour of the member that allocates from the slab; the number in the tile is the size of its
//! blocks. Blocks of a dead member are striped, so that they are recognisable without colour. The
//! legend and the description state the sums.

use std::fmt::Write;

use maud::{Markup, html};
use tontine_bench::heap_map::{HeapMap, MappedSlab, SLAB, SlabUse};
use tontine_bench::schema::{MapRow, Results};
use tontine_bench::sequence::grouped;

use super::words;

/// Number of slabs per row.
const COLUMNS: usize = 16;
/// Maximum number of rows drawn, so that the page stays readable for a heap of any size.
const MAX_ROWS: usize = 64;
const TILE: (f64, f64) = (27.0, 30.0);
/// Distance from one tile to the next.
const STEP: (f64, f64) = (31.0, 34.0);
const LEFT: f64 = 34.0;
/// Distance between two stripes.
const STRIPE: f64 = 2.5;
/// Colours of live members; blocks in flight have a different colour.
const COLOURS: [usize; 7] = [0, 2, 3, 6, 1, 5, 7];

/// Returns the pictures of an experiment's heaps; pictures of the same run are side by side.
pub(super) fn maps(results: &Results, experiment: &str) -> Markup {
    let rows = results.maps.iter().filter(|row| row.experiment == experiment);
    let name = |row: &MapRow| format!("{}, {}", row.variant, words::params(&row.params));
    let runs = grouped(rows.map(|row| (name(row), &row.map)));
    html! {
        @if !runs.is_empty() {
            h3 { "The heap, slab by slab" }
            p.hint {
                "A tile is a slab of 64 KiB, a row 1 MiB. Its filling shows the owners of its \
                 blocks; its frame has the colour of the process that allocates from it; the \
                 number is the size of its blocks in bytes. As reported by the heap's own "
                code { "check" } ", in the first invocation."
            }
        }
        @for (name, maps) in &runs {
            p.heaps { (name) }
            div.maps { @for map in maps { (figure(map)) } }
        }
    }
}

fn figure(map: &HeapMap) -> Markup {
    let drawn = map.slabs.len().min(COLUMNS * MAX_ROWS);
    let rows = drawn.div_ceil(COLUMNS).max(1);
    let width = LEFT + COLUMNS as f64 * STEP.0;
    let height = rows as f64 * STEP.1;
    html! {
        figure.heap {
            h5 { (map.moment) }
            svg viewBox=(format!("0 0 {width} {height}")) role="img" aria-label=(description(map)) {
                @for row in 0..rows {
                    @let y = row as f64 * STEP.1 + STEP.1 / 2.0 + 1.0;
                    text.at x=(LEFT - 6.0) y=(y) { (row) " MiB" }
                }
                @for (number, slab) in map.slabs[..drawn].iter().enumerate() {
                    (tile(map, number, slab))
                }
            }
            (legend(map))
            @let hidden = map.slabs.len() - drawn;
            @if hidden > 0 { p.hint { (hidden) " more slabs are not drawn." } }
            @for note in &map.notes { p.hint { (note) } }
        }
    }
}

fn tile(map: &HeapMap, number: usize, slab: &MappedSlab) -> Markup {
    let (column, row) = (number % COLUMNS, number / COLUMNS);
    let (x, y) = (LEFT + column as f64 * STEP.0 + 2.0, row as f64 * STEP.1 + 2.0);
    let (width, height) = TILE;
    let mut filled = 0.0;
    let mut layer = |bytes: usize| {
        let high = height * bytes as f64 / SLAB as f64;
        filled += high;
        (y + height - filled, high)
    };
    html! {
        g {
            @for (member, bytes) in &slab.held {
                @let (top, high) = layer(*bytes);
                @let class = colour(map, *member);
                rect class=(format!("part {class}")) x=(x) y=(round(top))
                    width=(width) height=(round(high)) {}
                @if is_dead(map, *member) { path.stripes d=(stripes(x, top, width, high)) {} }
            }
            @if slab.in_flight > 0 {
                @let (top, high) = layer(slab.in_flight);
                rect.moving x=(x) y=(round(top)) width=(width) height=(round(high)) {}
            }
            @match slab.made {
                SlabUse::Empty => rect.empty x=(x) y=(y) width=(width) height=(height) rx="3" {},
                SlabUse::Fetched | SlabUse::Punched | SlabUse::Damaged => {
                    rect.odd x=(x) y=(y) width=(width) height=(height) rx="3" {}
                }
                SlabUse::Blocks | SlabUse::Part => {}
            }
            @if let Some(owner) = slab.owner {
                @let class = colour(map, owner);
                rect class=(format!("frame {class}")) x=(x) y=(y)
                    width=(width) height=(height) rx="3" {}
            }
            @if let Some(label) = label(slab) {
                text.size x=(x + width / 2.0) y=(y + height / 2.0 + 3.0) { (label) }
            }
        }
    }
}

/// Returns the path of the stripes within a rectangle.
fn stripes(x: f64, top: f64, width: f64, high: f64) -> String {
    let mut path = String::new();
    let mut y = (top / STRIPE).ceil() * STRIPE;
    while y < top + high {
        let _ = write!(path, "M{x} {}h{width}", round(y));
        y += STRIPE;
    }
    path
}

fn round(at: f64) -> f64 {
    (at * 100.0).round() / 100.0
}

fn is_dead(map: &HeapMap, member: usize) -> bool {
    map.members.get(member).is_some_and(|owner| owner.dead)
}

fn colour(map: &HeapMap, member: usize) -> String {
    if is_dead(map, member) {
        return "dead".into();
    }
    format!("c{}", COLOURS[member % COLOURS.len()])
}

fn name(map: &HeapMap, member: usize) -> &str {
    map.members.get(member).map_or("unknown member", |owner| &owner.name)
}

fn label(slab: &MappedSlab) -> Option<String> {
    match slab.made {
        SlabUse::Blocks if slab.block > 9_999 => Some(format!("{}K", slab.block >> 10)),
        SlabUse::Blocks => Some(slab.block.to_string()),
        SlabUse::Part => Some("…".into()),
        SlabUse::Fetched => Some("+".into()),
        SlabUse::Punched => Some("−".into()),
        SlabUse::Damaged => Some("!".into()),
        SlabUse::Empty => None,
    }
}

/// Returns the bytes per owner: the members first, then blocks in flight and free space.
fn shares(map: &HeapMap) -> Vec<(String, String, usize)> {
    let members = (0..map.members.len()).map(|member| {
        let class = format!("part {}", colour(map, member));
        (class, name(map, member).to_owned(), map.held_by(member))
    });
    let sum = |of: fn(&MappedSlab) -> usize| map.slabs.iter().map(of).sum::<usize>();
    let rest = [
        ("moving".to_owned(), "in flight".to_owned(), sum(|slab| slab.in_flight)),
        ("free".to_owned(), "free".to_owned(), sum(|slab| slab.free)),
    ];
    members.chain(rest).collect()
}

fn legend(map: &HeapMap) -> Markup {
    let owns = |member: usize| map.slabs.iter().any(|slab| slab.owner == Some(member));
    let empty = map.slabs.iter().filter(|slab| slab.made == SlabUse::Empty).count() + map.beyond;
    html! {
        figcaption {
            @for (at, (class, name, bytes)) in shares(map).into_iter().enumerate() {
                @let frame = at < map.members.len() && owns(at);
                @if bytes > 0 || frame {
                    span {
                        svg.key aria-hidden="true" viewBox="0 0 14 14" height="14" {
                            @if class != "free" {
                                @if bytes > 0 {
                                    rect class=(class) x="1" y="1" width="12" height="12" {}
                                }
                                @if bytes > 0 && is_dead(map, at) {
                                    path.stripes d=(stripes(1.0, 1.0, 12.0, 12.0)) {}
                                }
                            }
                            @if frame {
                                rect class=(format!("frame {}", colour(map, at)))
                                    x="1" y="1" width="12" height="12" rx="2" {}
                            } @else if class == "free" {
                                rect.frame.c7 x="1" y="1" width="12" height="12" rx="2" {}
                            }
                        }
                        (name) " " @if bytes > 0 { (kib(bytes)) } @else { "has no block" }
                    }
                }
            }
            @if empty > 0 {
                span {
                    svg.key aria-hidden="true" viewBox="0 0 14 14" height="14" {
                        rect.empty x="1" y="1" width="12" height="12" rx="2" {}
                    }
                    (empty) " slabs without memory"
                    @if map.beyond > 0 { ", " (map.beyond) " of them after the last shown" }
                }
            }
        }
    }
}

fn kib(bytes: usize) -> String {
    format!("{} KiB", bytes.div_ceil(1_024))
}

fn description(map: &HeapMap) -> String {
    let shares: Vec<String> = shares(map)
        .into_iter()
        .filter(|(_, _, bytes)| *bytes > 0)
        .map(|(_, name, bytes)| format!("{name} {}", kib(bytes)))
        .collect();
    let slabs = map.committed();
    format!("Map of a heap. {}. {slabs} slabs have memory: {}.", map.moment, shares.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;
    use tontine_bench::heap_map::HeapMember;
    use tontine_bench::task::Params;

    /// Returns a heap with one parked block, one block in flight and one block larger than a slab.
    fn drawn(moment: &str, dead: bool) -> (Results, String) {
        let slab = |made: SlabUse, block: usize, held: usize| MappedSlab {
            made,
            block,
            owner: Some(0),
            held: if held > 0 { vec![(0, held)] } else { Vec::new() },
            free: SLAB - held,
            ..MappedSlab::default()
        };
        let map = HeapMap {
            moment: moment.into(),
            notes: Vec::new(),
            members: vec![HeapMember { name: "worker <1>".into(), dead }],
            slabs: vec![
                slab(SlabUse::Blocks, 1_024, 1_024),
                slab(SlabUse::Blocks, 2 * SLAB, SLAB),
                slab(SlabUse::Part, 2 * SLAB, SLAB),
                MappedSlab {
                    parked: 40_960,
                    free: SLAB - 40_960,
                    ..slab(SlabUse::Blocks, 40_960, 0)
                },
                MappedSlab {
                    in_flight: 3_072,
                    free: SLAB - 3_072,
                    ..slab(SlabUse::Blocks, 3_072, 0)
                },
            ],
            beyond: 59,
        };
        let mut results = fixture::small();
        results.maps.push(MapRow {
            experiment: "shared-heaps".into(),
            variant: "shared-killed".into(),
            params: Params::from([("benchmark".into(), "larson".into())]),
            map,
        });
        let page = maps(&results, "shared-heaps").into_string();
        (results, page)
    }

    #[test]
    fn slab_has_tile_with_size_and_owners() {
        let (results, page) = drawn("now", false);
        for said in [
            ">1024</text>",
            ">128K</text>",
            ">…</text>",
            "worker &lt;1&gt; 129 KiB",
            "in flight 3 KiB",
            "class=\"moving\"",
            "shared-killed, benchmark larson",
            "slabs without memory",
        ] {
            assert!(page.contains(said), "{said} in {page}");
        }
        assert!(!page.contains("stripes") && !page.contains("url("), "{page}");
        assert!(maps(&results, "allocators").into_string().is_empty());
    }

    #[test]
    fn blocks_of_dead_member_are_striped() {
        let (_, page) = drawn("it was killed", true);
        assert!(page.contains("class=\"stripes\"") && page.contains("frame dead"), "{page}");
    }

    #[test]
    fn stripes_stay_within_rectangle() {
        let path = stripes(0.0, 10.0, 27.0, 6.0);
        assert_eq!(path, "M0 10h27M0 12.5h27M0 15h27");
    }
}
