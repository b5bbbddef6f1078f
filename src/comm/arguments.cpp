#include "comm/arguments.hpp"

#include <cstring>
#include <functional>
#include <new>

#include "algorithms/catalogue.hpp"
#include "base/random.hpp"
#include "schedule/layouts.hpp"

namespace gradsync {
namespace {

template <class... Args>
[[noreturn]] void refuse(const Asked& asked, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(failure(ErrorCode::invalid_argument, "{}: {}", name_of(asked.collective),
                      fmt::format(format, std::forward<Args>(args)...)));
}

bool is_pair(Collective c) { return c == Collective::send || c == Collective::recv; }
bool reduces(Collective c) {
  return c == Collective::all_reduce || c == Collective::reduce_scatter || c == Collective::reduce;
}

// Which of the two views count on this rank.
struct Roles {
  bool input, output;
};
Roles roles_of(const Caller& caller, const Asked& asked) {
  const bool root = static_cast<int>(caller.rank) == asked.root;
  switch (asked.collective) {
    case Collective::broadcast: return {root, true};
    case Collective::reduce:
    case Collective::gather: return {true, root};
    case Collective::scatter: return {root, true};
    case Collective::barrier: return {false, false};
    case Collective::send: return {true, false};
    case Collective::recv: return {false, true};
    default: return {true, true};
  }
}

void check_root(const Caller& caller, const Asked& asked) {
  const bool pair = is_pair(asked.collective);
  if (!pair && !has_root(asked.collective)) return;
  if (asked.collective == Collective::recv && asked.root == any_rank) {
    if (caller.size == 1) refuse(asked, "any rank may send, but the world has only this one");
    return;
  }
  if (asked.root < 0 || asked.root >= static_cast<int>(caller.size))
    refuse(asked, "{} is rank {}, but the world has ranks 0 to {}", pair ? "the peer" : "the root", asked.root,
           caller.size - 1);
  if (pair && asked.root == static_cast<int>(caller.rank)) refuse(asked, "the peer is rank {} itself", asked.root);
}

void check_options(const Asked& asked) {
  if (asked.options.segments > limits::segments_max)
    refuse(asked, "{} segments were asked for, allowed are 1 to {}, or 0 to have them chosen", asked.options.segments,
           limits::segments_max);
  if (!asked.options.shards.empty() && asked.options.algorithm == Algorithm::automatic)
    refuse(asked, "weights of {} shards were given, but no algorithm was named", asked.options.shards.size());
  if (!is_pair(asked.collective) && asked.options.tag != 0)
    refuse(asked, "tag {} was given, but only send and recv have tags", asked.options.tag);
  if (asked.options.timeout && asked.options.timeout->count() <= 0)
    refuse(asked, "the timeout is {:g} s, expected more than 0",
           std::chrono::duration<double>(*asked.options.timeout).count());
}

void check_view(const Asked& asked, const char* which, const void* data, std::size_t count, DType dtype) {
  if (static_cast<std::size_t>(dtype) >= kDTypeCount)
    refuse(asked, "{} has element type number {}, known are {}", which, static_cast<int>(dtype), known_dtypes());
  if (count > 0 && data == nullptr) refuse(asked, "{} is null but holds {} elements", which, count);
  if (count > limits::message_bytes_max / size_of(dtype))
    refuse(asked, "{} of {} {} is beyond the limit of {} bytes", which, count, name_of(dtype),
           limits::message_bytes_max);
}

void check_types(const Asked& asked, Roles roles) {
  if (roles.input) check_view(asked, "the input", asked.input.data, asked.input.count, asked.input.dtype);
  if (roles.output) check_view(asked, "the output", asked.output.data, asked.output.count, asked.output.dtype);
  if (roles.input && roles.output && asked.input.dtype != asked.output.dtype)
    refuse(asked, "the input is {}, the output is {}", name_of(asked.input.dtype), name_of(asked.output.dtype));
  const DType dtype = roles.input ? asked.input.dtype : asked.output.dtype;
  if (reduces(asked.collective) && static_cast<std::size_t>(asked.op) >= kReduceOpCount)
    refuse(asked, "operator number {} is unknown, known are {}", static_cast<int>(asked.op), known_reduce_ops());
  if (reduces(asked.collective) && !supports(dtype, asked.op))
    throw Error(failure(ErrorCode::unsupported, "{}: {} of {} is not defined", name_of(asked.collective),
                        name_of(asked.op), name_of(dtype)));
}

// The sum of blocks that the caller sized. Each and all together are within a message's limit, so it cannot wrap.
std::uint64_t total(const Asked& asked, std::span<const std::size_t> counts, DType dtype) {
  const std::uint64_t most = limits::message_bytes_max / size_of(dtype);
  std::uint64_t sum = 0;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    if (counts[rank] > most)
      refuse(asked, "the count of {} {} for rank {} is beyond the limit of {} bytes", counts[rank], name_of(dtype),
             rank, limits::message_bytes_max);
    if (counts[rank] > most - sum)
      refuse(asked, "the counts of ranks 0 to {} add up to {} {}, beyond the limit of {} bytes", rank,
             sum + counts[rank], name_of(dtype), limits::message_bytes_max);
    sum += counts[rank];
  }
  return sum;
}

void expect(const Asked& asked, const char* which, std::size_t holds, std::uint64_t needs) {
  if (holds != needs) refuse(asked, "{} holds {} elements, expected {}", which, holds, needs);
}

// One block's elements where all are equal, from whichever view this rank has.
std::uint64_t equal_block(const Caller& caller, const Asked& asked) {
  switch (asked.collective) {
    case Collective::reduce_scatter:
    case Collective::scatter: return asked.output.count;
    case Collective::all_to_all:
      if (asked.input.count % caller.size != 0)
        refuse(asked, "the input holds {} elements, which {} ranks cannot share equally", asked.input.count,
               caller.size);
      return asked.input.count / caller.size;
    default: return asked.input.count;
  }
}

// Block sizes that all ranks agree on, and whether they were given.
struct Blocks {
  bool given = false;
  std::uint64_t each = 0;            // if not given
  std::vector<std::uint64_t> sizes;  // if given
  std::uint64_t all = 0;             // the sum, within a message's limit
  std::uint64_t size(std::uint32_t rank) const { return given ? sizes[rank] : each; }
  std::uint64_t hash() const {
    if (!given) return 0;
    std::uint64_t h = 1;
    for (std::uint64_t n : sizes) h = mix64(h ^ n);
    return h | 1;
  }
};

Blocks blocks_of(const Caller& caller, const Asked& asked, std::span<const std::size_t> counts, DType dtype) {
  if (counts.empty()) {
    const std::uint64_t each = equal_block(caller, asked);
    if (each > limits::message_bytes_max / size_of(dtype) / caller.size)
      refuse(asked, "{} blocks of {} {} are beyond the limit of {} bytes", caller.size, each, name_of(dtype),
             limits::message_bytes_max);
    return {false, each, {}, each * caller.size};
  }
  if (counts.size() != caller.size) refuse(asked, "{} counts were given for {} ranks", counts.size(), caller.size);
  return {true, 0, {counts.begin(), counts.end()}, total(asked, counts, dtype)};
}

// The counts that this rank's views must have, block by block.
void check_blocks(const Caller& caller, const Asked& asked, Roles roles, const Blocks& blocks) {
  const std::uint64_t all = blocks.all, mine = blocks.size(caller.rank);
  const bool spreads = asked.collective == Collective::reduce_scatter || asked.collective == Collective::scatter;
  if (roles.input) expect(asked, "the input", asked.input.count, spreads ? all : mine);
  if (roles.output) expect(asked, "the output", asked.output.count, spreads ? mine : all);
}

void check_exchange(const Caller& caller, const Asked& asked, DType dtype) {
  if (asked.counts.empty() != asked.recv_counts.empty())
    refuse(asked, "send counts and receive counts must be given together");
  if (asked.counts.empty()) {
    expect(asked, "the output", asked.output.count, asked.input.count);
    equal_block(caller, asked);
    return;
  }
  if (asked.recv_counts.size() != caller.size)
    refuse(asked, "{} receive counts were given for {} ranks", asked.recv_counts.size(), caller.size);
  expect(asked, "the input", asked.input.count, total(asked, asked.counts, dtype));
  expect(asked, "the output", asked.output.count, total(asked, asked.recv_counts, dtype));
}

// Input and output may be equal at the in-place position, or apart; nothing in between.
void check_overlap(const Asked& asked, const Request& request, Roles roles) {
  if (!roles.input || !roles.output || asked.input.count == 0 || asked.output.count == 0) return;
  const std::uint64_t element = size_of(asked.input.dtype);
  const auto in = reinterpret_cast<std::uintptr_t>(asked.input.data),
             out = reinterpret_cast<std::uintptr_t>(asked.output.data);
  const std::uint64_t in_bytes = asked.input.count * element, out_bytes = asked.output.count * element;
  if (in + in_bytes <= out || out + out_bytes <= in) return;
  const Shape& shape = request.schedule->shape;
  const std::uint64_t in_at = request.input_layout.offset(shape.input.first) * element;
  const std::uint64_t out_at = request.output_layout.offset(shape.output.first) * element;
  if (in - in_at == out - out_at) return;
  refuse(asked, "input and output overlap by {} bytes, but not at the in-place position",
         std::min(in + in_bytes, out + out_bytes) - std::max(in, out));
}

// An exchange in place reads blocks that it overwrites: it works on a copy of the input. Without memory for it the call
// is refused here, where the peers cannot see it: theirs wait for this rank until it calls again or their deadline.
void detach_in_place_exchange(const Asked& asked, Request& request) {
  if (asked.collective != Collective::all_to_all || asked.input.data != asked.output.data || asked.input.count == 0)
    return;
  const std::size_t bytes = asked.input.count * size_of(asked.input.dtype);
  const auto* data = static_cast<const std::byte*>(asked.input.data);
  std::shared_ptr<std::byte[]> copy(new (std::nothrow) std::byte[bytes]);
  if (!copy)
    throw Error(failure(ErrorCode::out_of_memory,
                        "{}: no memory for a copy of the input's {} bytes, which a call in place needs",
                        name_of(asked.collective), bytes));
  std::memcpy(copy.get(), data, bytes);
  request.input = copy.get();
  request.owned_input = std::move(copy);
}

struct Sizes {
  std::uint64_t count = 0, hash = 0, bytes = 0;  // bytes decide the algorithm: equal on all ranks
};

Sizes set_layouts(const Caller& caller, const Asked& asked, Roles roles, DType dtype, Request& request,
                  const std::function<const Schedule&(std::uint64_t bytes)>& plan) {
  const std::uint64_t element = size_of(dtype);
  if (asked.collective == Collective::all_to_all) {
    check_exchange(caller, asked, dtype);
    if (asked.counts.empty()) {
      const std::uint64_t each = equal_block(caller, asked);
      plan(each * element);
      request.input_layout = request.output_layout = Layout::equal_blocks(each, caller.size);
      return {each, 0, each * element};
    }
    const Blocks sent = blocks_of(caller, asked, asked.counts, dtype),
                 got = blocks_of(caller, asked, asked.recv_counts, dtype);
    plan(0);
    request.input_layout = Layout::given_blocks(sent.sizes);
    request.output_layout = Layout::given_blocks(got.sizes);
    return {0, 1, 0};  // sizes differ between ranks; each message is checked against its receiver's
  }
  if (has_blocks(asked.collective)) {
    const Blocks blocks = blocks_of(caller, asked, asked.counts, dtype);
    check_blocks(caller, asked, roles, blocks);
    const std::uint64_t bytes = blocks.given ? blocks.all / caller.size * element : blocks.each * element;
    const Schedule& schedule = plan(bytes);
    request.input_layout = request.output_layout =
        blocks.given ? layout_for(schedule.recipe, schedule.shape, std::span<const std::uint64_t>(blocks.sizes))
                     : layout_for(schedule.recipe, schedule.shape, blocks.each);
    return {blocks.given ? blocks.all : blocks.each, blocks.hash(), bytes};
  }
  const std::uint64_t count = roles.input ? asked.input.count : roles.output ? asked.output.count : 0;
  if (roles.input && roles.output) expect(asked, "the output", asked.output.count, asked.input.count);
  const Schedule& schedule = plan(count * element);
  request.input_layout = request.output_layout = layout_for(schedule.recipe, schedule.shape, count);
  return {count, hash_of_shards(schedule.recipe.shards), count * element};
}

}  // namespace

Request make_request(const Caller& caller, const Asked& asked) {
  check_root(caller, asked);
  check_options(asked);
  const Roles roles = roles_of(caller, asked);
  check_types(asked, roles);
  const DType dtype = roles.input ? asked.input.dtype : roles.output ? asked.output.dtype : DType::u8;
  const bool pair = is_pair(asked.collective), rooted = has_root(asked.collective);
  const bool any = pair && asked.root == any_rank;
  const std::uint32_t next = (caller.rank + 1) % caller.size;
  const auto root = any ? next : static_cast<std::uint32_t>(pair || rooted ? asked.root : 0);

  Request request;
  const auto plan = [&](std::uint64_t bytes) -> const Schedule& {
    request.schedule = caller.plans->plan({asked.collective, root, bytes, asked.options});
    return *request.schedule;
  };
  const Sizes sizes = set_layouts(caller, asked, roles, dtype, request, plan);
  const Recipe& recipe = request.schedule->recipe;
  request.channel = pair ? Channel::point_to_point : Channel::collective;
  request.call = {asked.collective,
                  dtype,
                  reduces(asked.collective) ? asked.op : ReduceOp::sum,
                  recipe.algorithm,
                  rooted ? root : 0,
                  recipe.segments,
                  sizes.count,
                  sizes.hash,
                  asked.options.tag};
  request.any_source = any;
  request.input = roles.input ? asked.input.data : nullptr;
  request.output = roles.output ? asked.output.data : nullptr;
  request.contributions = caller.size;
  check_overlap(asked, request, roles);
  detach_in_place_exchange(asked, request);
  request.deadline = Deadline::after(asked.options.timeout.value_or(caller.timeout));
  return request;
}

}  // namespace gradsync
