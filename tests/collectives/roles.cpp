#include "base/status.hpp"
#include "collectives/call.hpp"
#include "schedule/layouts.hpp"

namespace gradsync::test {
namespace {

// Blocks of one message, in rank order.
struct Blocks {
  std::vector<std::size_t> sizes, starts;
  std::size_t total = 0;
  void add(std::size_t size) {
    sizes.push_back(size);
    starts.push_back(total);
    total += size;
  }
};

// `shared`: `count` elements in blocks that differ, some of them empty when there are few.
Blocks blocks_of(const Call& call, std::uint32_t size) {
  Blocks blocks;
  std::size_t weights = 0, weight_before = 0;
  for (std::uint32_t r = 0; r < size; ++r) weights += (r + call.salt) % 3 + 1;
  for (std::uint32_t r = 0; r < size; ++r) {
    const std::size_t weight = (r + call.salt) % 3 + 1;
    const std::size_t until = call.count * (weight_before + weight) / weights;
    blocks.add(call.shared ? until - blocks.total : call.count);
    weight_before += weight;
  }
  return blocks;
}

// What rank `from` sends to everyone in an exchange: together about `count` elements if shared.
Blocks sent_by(const Call& call, std::uint32_t from, std::uint32_t size) {
  Blocks blocks;
  for (std::uint32_t to = 0; to < size; ++to)
    blocks.add(call.shared ? call.count / size + (from * 3 + to + call.salt) % 4 * (call.count % 97 + 1) : call.count);
  return blocks;
}

Roles exchange_roles(const Call& call, std::uint32_t rank, std::uint32_t size, const Sources& sources) {
  Roles roles;
  const Blocks mine = sent_by(call, rank, size);
  roles.input = {{&sources.moved[rank], 0, mine.total}};
  for (std::uint32_t from = 0; from < size; ++from) {
    const Blocks theirs = sent_by(call, from, size);
    roles.output.push_back({&sources.moved[from], theirs.starts[rank], theirs.sizes[rank]});
    roles.output_count += theirs.sizes[rank];
    roles.recv_counts.push_back(theirs.sizes[rank]);
  }
  roles.input_count = roles.total = mine.total;
  roles.counts = mine.sizes;
  if (!call.shared) roles.counts.clear(), roles.recv_counts.clear();
  return roles;
}

void take_block(const Blocks& blocks, std::uint32_t rank, std::size_t& first, std::size_t& count) {
  first = blocks.starts[rank];
  count = blocks.sizes[rank];
}

// Collectives whose message is the ranks' blocks, one after another.
Roles block_roles(const Call& call, std::uint32_t rank, std::uint32_t size, const Sources& sources) {
  Roles roles;
  const Blocks blocks = blocks_of(call, size);
  roles.total = roles.input_count = roles.output_count = blocks.total;
  if (call.shared) roles.counts = blocks.sizes;
  const bool gathers = call.collective == Collective::all_gather || call.collective == Collective::gather;
  if (gathers) take_block(blocks, rank, roles.input_first, roles.input_count);
  else take_block(blocks, rank, roles.output_first, roles.output_count);
  if (call.collective == Collective::reduce_scatter) {
    roles.input = {{sources.mine, 0, blocks.total}};
    if (sources.result) roles.output = {{sources.result, roles.output_first, roles.output_count}};
  } else if (gathers) {
    roles.input = {{&sources.moved[rank], roles.input_first, roles.input_count}};
    for (std::uint32_t r = 0; r < size; ++r)
      roles.output.push_back({&sources.moved[r], blocks.starts[r], blocks.sizes[r]});
  } else {
    const Pattern& root = sources.moved[static_cast<std::size_t>(call.root)];
    roles.input = {{&root, 0, blocks.total}};
    roles.output = {{&root, roles.output_first, roles.output_count}};
  }
  return roles;
}

Roles whole_roles(const Call& call, std::uint32_t rank, std::uint32_t size, const Sources& sources) {
  Roles roles;
  roles.total = roles.input_count = roles.output_count = call.count;
  const Pattern* in = sources.mine;
  const Pattern* out = sources.result;
  if (call.collective == Collective::broadcast) in = out = &sources.moved[static_cast<std::size_t>(call.root)];
  if (call.collective == Collective::send) {
    in = &sources.moved[rank];
    out = &sources.moved[(rank + size - 1) % size];
  }
  roles.input = {{in, 0, call.count}};
  if (out) roles.output = {{out, 0, call.count}};
  return roles;
}

}  // namespace

std::string Call::name() const {
  const bool has_op = collective == Collective::all_reduce || collective == Collective::reduce_scatter ||
                      collective == Collective::reduce;
  return fmt::format("{} by {} of {} {}{}{}, root {}, segments {}{}", name_of(collective), name_of(algorithm), count,
                     name_of(dtype), has_op ? " " : "", has_op ? name_of(op) : "", root, segments,
                     in_place ? ", in place" : "") +
         (shared ? ", in uneven blocks" : "");
}

Roles roles_of(const Call& call, std::uint32_t rank, std::uint32_t size, const Sources& sources) {
  Roles roles = call.collective == Collective::all_to_all ? exchange_roles(call, rank, size, sources)
                : has_blocks(call.collective)             ? block_roles(call, rank, size, sources)
                                                          : whole_roles(call, rank, size, sources);
  const bool root = static_cast<int>(rank) == call.root;
  const bool from_root = call.collective == Collective::broadcast || call.collective == Collective::scatter;
  const bool to_root = call.collective == Collective::reduce || call.collective == Collective::gather;
  if (from_root && !root) roles.input.clear(), roles.input_count = 0;
  if (to_root && !root) roles.output.clear(), roles.output_count = 0;
  return roles;
}

}  // namespace gradsync::test
