#include "comm/measure.hpp"

#include <algorithm>
#include <array>

#include "base/clock.hpp"
#include "kernels/kernels.hpp"

namespace gradsync {
namespace {

constexpr std::size_t kLargeBytes = 1u << 20;
constexpr int kSmallRounds = 31, kLargeRounds = 5;

double seconds_since(TimePoint start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

// A closed round of ranks in which this one has a place.
struct Round {
  std::vector<int> ranks;
  std::size_t me = 0;
  int next() const { return ranks[(me + 1) % ranks.size()]; }
  int before() const { return ranks[(me + ranks.size() - 1) % ranks.size()]; }
};

struct Timing {
  double message_s = 0;  // from the sender's call to the receiver's return
  double send_s = 0;     // of which the sender's own
};

// Every rank sends to the next one and receives from the one before; those at even places send first.
Timing shift(Communicator& comm, const Round& round, std::size_t bytes, int rounds) {
  std::vector<std::byte> out(bytes), in(bytes);
  const auto send = [&] { comm.send(ConstView(out.data(), bytes, DType::u8), round.next()); };
  const auto recv = [&] { comm.recv(View{in.data(), bytes, DType::u8}, round.before()); };
  std::vector<double> messages, sends;
  for (int i = 0; i < rounds; ++i) {
    const TimePoint start = std::chrono::steady_clock::now();
    if (round.me % 2 == 1) recv();
    const TimePoint sending = std::chrono::steady_clock::now();
    send();
    sends.push_back(seconds_since(sending));
    if (round.me % 2 == 0) recv();
    messages.push_back(seconds_since(start) / 2);  // one way and the answer of the other parity
  }
  return {median(messages), median(sends)};
}

struct Costs {
  Link link;
  double overhead_s = 0;
};

Costs costs_of(Communicator& comm, const Round& round) {
  shift(comm, round, 1, 3);  // opens the streams
  const Timing small = shift(comm, round, 1, kSmallRounds), large = shift(comm, round, kLargeBytes, kLargeRounds);
  Costs costs;
  costs.overhead_s = std::min(small.send_s, small.message_s / 3);
  costs.link.alpha_s = std::max(0.0, small.message_s - 2 * costs.overhead_s);
  costs.link.beta_s_per_byte = std::max(1e-12, (large.message_s - small.message_s) / kLargeBytes);
  return costs;
}

double reduction_s_per_byte() {
  std::vector<float> into(kLargeBytes / 4, 1.0f), from(kLargeBytes / 4, 2.0f);
  std::vector<double> times;
  for (int i = 0; i < kLargeRounds; ++i) {
    const TimePoint start = std::chrono::steady_clock::now();
    kernels::combine(kernels::Work::f32, ReduceOp::sum, into.data(), from.data(), into.size());
    times.push_back(seconds_since(start));
  }
  return median(times) / kLargeBytes;
}

// The ranks of one host, or the first rank of each host; no place of this rank's: an empty round.
Round round_of(const Communicator& comm, bool inside) {
  const std::vector<std::uint32_t>& hosts = comm.hosts();
  const auto self = static_cast<std::size_t>(comm.rank());
  Round round;
  bool member = false;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    const bool first_of_host =
        std::find(hosts.begin(), hosts.end(), hosts[r]) == hosts.begin() + static_cast<std::ptrdiff_t>(r);
    if (inside ? hosts[r] != hosts[self] : !first_of_host) continue;
    if (r == self) {
      round.me = round.ranks.size();
      member = true;
    }
    round.ranks.push_back(static_cast<int>(r));
  }
  if (!member || round.ranks.size() < 2) round.ranks.clear();
  return round;
}

}  // namespace

Network measure_network(Communicator& comm, const Network& assumed) {
  if (comm.size() == 1) return assumed;
  Network mine;
  comm.barrier();
  if (const Round round = round_of(comm, true); !round.ranks.empty()) {
    const Costs costs = costs_of(comm, round);
    mine.inside = costs.link;
    mine.overhead_s = costs.overhead_s;
  }
  comm.barrier();
  if (const Round round = round_of(comm, false); !round.ranks.empty()) {
    const Costs costs = costs_of(comm, round);
    mine.between = costs.link;
    mine.overhead_s = std::max(mine.overhead_s, costs.overhead_s);
  }
  mine.gamma_s_per_byte = reduction_s_per_byte();
  std::array<double, 6> agreed = {mine.inside.alpha_s,          mine.inside.beta_s_per_byte, mine.between.alpha_s,
                                  mine.between.beta_s_per_byte, mine.gamma_s_per_byte,       mine.overhead_s};
  comm.all_reduce(view(agreed), ReduceOp::max, {.algorithm = Algorithm::recursive_doubling});
  Network network{{agreed[0], agreed[1]}, {agreed[2], agreed[3]}, assumed.nic_shared, agreed[4], agreed[5]};
  if (network.inside.beta_s_per_byte == 0) network.inside = network.between;   // one rank a host
  if (network.between.beta_s_per_byte == 0) network.between = network.inside;  // one host
  return network;
}

}  // namespace gradsync
