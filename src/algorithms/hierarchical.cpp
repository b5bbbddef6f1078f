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
//
// With weights for the hosts (Recipe::shards) the owners of a slice share it unevenly, and directly, as in two_shot:
// circulant would pass the large blocks through the slow hosts. In segments, a slice's results come in while the next
// segment goes out.
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
  std::uint32_t segments = 1;
  bool uneven = false;
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
  hosts.segments = recipe.segments;
  hosts.uneven = !recipe.shards.empty();
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

// One segment of every slice. A stretch is a slice's part of it: a block for each host.
class Segment {
 public:
  Segment(const Hosts& hosts, std::uint32_t number)
      : hosts_(hosts),
        number_(number),
        node_(Team::of(hosts.node, hosts.position)) {}

  void reduce(Emit& out) const {
    reduce_in_host(out);
    if (!hosts_.owner()) return;
    const Team rail = this->rail();
    const Range mine = stretch(node_.me());
    const Operand own = at(Space::output, part_of(mine, rail.size(), rail.me()));
    if (hosts_.uneven) direct_reduce_scatter(out, rail, mine, kInPlace, own);
    else circulant_reduce_scatter(out, rail, mine, kInPlace, own, kWrap);
  }

  void hand_out(Emit& out) const {
    if (hosts_.owner()) {
      if (hosts_.uneven) direct_all_gather(out, rail(), stretch(node_.me()));
      else circulant_all_gather(out, rail(), stretch(node_.me()), kWrap);
    }
    gather_in_host(out);
  }

 private:
  static constexpr Places kInPlace{Space::output, Space::output};
  static constexpr Wrap kWrap = Wrap::split;  // a stretch is not the whole message

  Team rail() const { return Team::of(hosts_.rail, hosts_.host); }
  Range stretch(std::uint32_t slice) const {
    return {(slice * hosts_.segments + number_) * hosts_.hosts, hosts_.hosts};
  }

  // Everyone of the host gives each owner its stretch; the owner's sum lands in its output.
  void reduce_in_host(Emit& out) const {
    for (std::uint32_t k = 1; k < node_.size(); ++k) {
      const std::uint32_t owner = (node_.me() + k) % node_.size();
      if (owner < hosts_.slices) out.send(node_.rank(owner), at(Space::input, stretch(owner)));
    }
    if (hosts_.owner())
      reduce_in_order(out, node_, stretch(node_.me()), Space::input, at(Space::output, stretch(node_.me())));
  }

  void gather_in_host(Emit& out) const {
    if (hosts_.owner())
      for (std::uint32_t k = 1; k < node_.size(); ++k) out.send(node_.after(k), at(Space::output, stretch(node_.me())));
    for (std::uint32_t k = 1; k < node_.size(); ++k) {
      const std::uint32_t owner = (node_.me() + node_.size() - k) % node_.size();
      if (owner < hosts_.slices) out.recv(node_.rank(owner), at(Space::output, stretch(owner)));
    }
  }

  const Hosts& hosts_;
  std::uint32_t number_;
  Team node_;
};

}  // namespace

// A slice for each owner of a host, in segments, and a block of each for each host.
std::uint32_t hierarchical_chunks(const Recipe& recipe) {
  const Placement placement = placement_of(recipe);
  return smallest_host(placement) * recipe.segments * static_cast<std::uint32_t>(placement.starts.size() - 1);
}

std::uint32_t hierarchical_scratch(const Recipe& recipe, std::uint32_t rank) {
  const Hosts hosts = hosts_of(recipe, rank);
  if (!hosts.owner()) return 0;
  return std::max(scratch_of_reduce_in_order(hosts.position),
                  hosts.uneven ? scratch_of_reduce_in_order(hosts.host) : 0);
}

void hierarchical_all_reduce(const Recipe& recipe, std::uint32_t rank, Emit& out) {
  const Hosts hosts = hosts_of(recipe, rank);
  for (std::uint32_t s = 0; s < hosts.segments; ++s) {
    Segment(hosts, s).reduce(out);
    if (s > 0) Segment(hosts, s - 1).hand_out(out);
  }
  Segment(hosts, hosts.segments - 1).hand_out(out);
}

}  // namespace gradsync
