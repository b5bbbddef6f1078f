// Hierarchical: links inside a host are fast and the way out is shared, so every byte should leave a host once. The
// message is cut into L slices, L being the number of ranks on the smallest host; inside each host the first L ranks
// own a slice each and add up what their neighbours send; then the owners of one slice, one on each host, all-reduce
// it across the hosts (circulant, log-step); then they hand it to everyone on their host. Hosts may have different
// numbers of ranks, placed in any way; ranks beyond the first L only contribute and receive.
//
//   two hosts    0 1 2 3 | 4 5 6 7
//   reduce       slice l of 0 1 2 3 -> l          slice l of 4 5 6 7 -> 4 + l
//   across       0 = 4    1 = 5    2 = 6    3 = 7
//   hand out     slice l of l -> 0 1 2 3          slice l of 4 + l -> 4 5 6 7
//
// Eight ranks on two hosts, S bytes: 4 steps, 3/4 + 1/4 + 3/4 S sent by each rank, the 1/4 S across; at most 7/8 S
// staged and 1/4 S of scratch from the third rank of a host on.
#include <algorithm>
#include <vector>

#include "algorithms/generators.hpp"
#include "algorithms/parts.hpp"

namespace gradsync {
namespace {

// The hosts as one rank sees them.
struct Hosts {
  std::vector<std::uint32_t> node;  // ranks of this rank's host, ascending
  std::uint32_t position = 0;       // this rank's index in `node`
  std::vector<std::uint32_t> rail;  // if an owner: the owners of the same slice, one a host, by host number
  std::uint32_t host = 0;           // this host's index in `rail`
  std::uint32_t hosts = 1;
  std::uint32_t slices = 1;
  bool owner() const { return position < slices; }
};

struct Placed {
  std::uint32_t host, rank;
  friend bool operator<(const Placed& a, const Placed& b) {
    return a.host != b.host ? a.host < b.host : a.rank < b.rank;
  }
};

// Every rank with its host, sorted; and where each host's stretch begins, with the end last.
struct Placement {
  std::vector<Placed> ranks;
  std::vector<std::size_t> starts;
};

Placement placement_of(const Recipe& recipe) {
  Placement placement;
  for (std::uint32_t rank = 0; rank < recipe.world; ++rank)
    placement.ranks.push_back({recipe.hosts.empty() ? 0 : recipe.hosts[rank], rank});
  if (!std::is_sorted(placement.ranks.begin(), placement.ranks.end()))  // hosts are mostly numbered as ranks are
    std::sort(placement.ranks.begin(), placement.ranks.end());
  for (std::size_t i = 0; i < placement.ranks.size(); ++i)
    if (i == 0 || placement.ranks[i].host != placement.ranks[i - 1].host) placement.starts.push_back(i);
  placement.starts.push_back(placement.ranks.size());
  return placement;
}

std::uint32_t smallest_host(const Placement& placement) {
  std::size_t smallest = placement.ranks.size();
  for (std::size_t h = 0; h + 1 < placement.starts.size(); ++h)
    smallest = std::min(smallest, placement.starts[h + 1] - placement.starts[h]);
  return static_cast<std::uint32_t>(smallest);
}

Hosts hosts_of(const Recipe& recipe, std::uint32_t rank) {
  const Placement placement = placement_of(recipe);
  Hosts hosts;
  hosts.hosts = static_cast<std::uint32_t>(placement.starts.size() - 1);
  hosts.slices = smallest_host(placement);
  for (std::uint32_t h = 0; h < hosts.hosts; ++h)
    for (std::size_t i = placement.starts[h]; i < placement.starts[h + 1]; ++i)
      if (placement.ranks[i].rank == rank) {
        hosts.host = h;
        hosts.position = static_cast<std::uint32_t>(i - placement.starts[h]);
      }
  for (std::size_t i = placement.starts[hosts.host]; i < placement.starts[hosts.host + 1]; ++i)
    hosts.node.push_back(placement.ranks[i].rank);
  if (hosts.owner())
    for (std::uint32_t h = 0; h < hosts.hosts; ++h)
      hosts.rail.push_back(placement.ranks[placement.starts[h] + hosts.position].rank);
  return hosts;
}

// Everyone of the host gives each owner its slice; the owner's sum lands in its output.
Range reduce_in_host(Emit& out, const Team& node, const Hosts& hosts, Range all) {
  for (std::uint32_t k = 1; k < node.size(); ++k) {
    const std::uint32_t owner = (node.me() + k) % node.size();
    if (owner < hosts.slices) out.send(node.rank(owner), at(Space::input, part_of(all, hosts.slices, owner)));
  }
  if (!hosts.owner()) return {};
  const Range mine = part_of(all, hosts.slices, node.me());
  reduce_in_order(out, node, mine, Space::input, at(Space::output, mine));
  return mine;
}

void reduce_across_hosts(Emit& out, const Team& rail, Range mine) {
  const Places in_place{Space::output, Space::output};
  const Wrap wrap = Wrap::split;  // a slice is not the whole message
  circulant_reduce_scatter(out, rail, mine, in_place, at(Space::output, part_of(mine, rail.size(), rail.me())), wrap);
  circulant_all_gather(out, rail, mine, wrap);
}

void gather_in_host(Emit& out, const Team& node, const Hosts& hosts, Range all, Range mine) {
  if (hosts.owner())
    for (std::uint32_t k = 1; k < node.size(); ++k) out.send(node.after(k), at(Space::output, mine));
  for (std::uint32_t k = 1; k < node.size(); ++k) {
    const std::uint32_t owner = (node.me() + node.size() - k) % node.size();
    if (owner < hosts.slices) out.recv(node.rank(owner), at(Space::output, part_of(all, hosts.slices, owner)));
  }
}

}  // namespace

// A slice for each owner of a host, and a block of it for each host.
std::uint32_t hierarchical_chunks(const Recipe& recipe) {
  const Placement placement = placement_of(recipe);
  return smallest_host(placement) * static_cast<std::uint32_t>(placement.starts.size() - 1);
}

std::uint32_t hierarchical_scratch(const Recipe& recipe, std::uint32_t rank) {
  const Hosts hosts = hosts_of(recipe, rank);
  return hosts.owner() ? scratch_of_reduce_in_order(hosts.position) : 0;
}

void hierarchical_all_reduce(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  const Hosts hosts = hosts_of(recipe, rank);
  const Range all{0, hosts.slices * hosts.hosts};
  const Team node = Team::of(hosts.node, hosts.position);
  const Range mine = reduce_in_host(out, node, hosts, all);
  if (hosts.owner()) reduce_across_hosts(out, Team::of(hosts.rail, hosts.host), mine);
  gather_in_host(out, node, hosts, all, mine);
}

}  // namespace gradsync
