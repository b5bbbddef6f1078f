#include "simulate/shards.hpp"

#include <algorithm>

#include "algorithms/catalogue.hpp"
#include "base/float_mode.hpp"

namespace gradsync {
namespace {

double sum_of(Bandwidths bandwidth) {
  double sum = 0;
  for (double b : bandwidth) sum += b;
  return sum;
}

// Of each host, by ascending number; none if the network does not know one of them.
std::vector<double> bandwidths_of(std::vector<std::uint32_t> hosts, const Network& network) {
  std::sort(hosts.begin(), hosts.end());
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  std::vector<double> bandwidth;
  for (std::uint32_t host : hosts) {
    if (host >= network.ports.size()) return {};
    const HostPort& port = network.ports[host];
    bandwidth.push_back(1 / std::max(port.out_s_per_byte, port.in_s_per_byte));
  }
  return bandwidth;
}

[[gnu::noinline]] std::vector<std::uint32_t> weights_of(Bandwidths bandwidth) {
  const double t = least_seconds_a_byte(bandwidth);
  std::vector<double> part;
  double all = 0;
  for (double b : bandwidth) {
    part.push_back(std::max(0.0, t * b - 1));
    all += part.back();
  }
  std::vector<std::uint32_t> weights;
  double before = 0;
  std::uint32_t given = 0;
  for (double p : part) {
    before += p;
    const auto up_to = static_cast<std::uint32_t>(before / all * shard_weights_sum + 0.5);
    weights.push_back(up_to - given);
    given = up_to;
  }
  return weights;
}

}  // namespace

double least_seconds_a_byte(Bandwidths bandwidth) {
  const double slowest = *std::min_element(bandwidth.begin(), bandwidth.end());
  return std::max(1 / slowest, 2 * static_cast<double>(bandwidth.size() - 1) / sum_of(bandwidth));
}

double even_seconds_a_byte(Bandwidths bandwidth) {
  const auto n = static_cast<double>(bandwidth.size());
  return 2 * (n - 1) / n / *std::min_element(bandwidth.begin(), bandwidth.end());
}

std::vector<std::uint32_t> uneven_shards(Bandwidths bandwidth) {
  const DefaultFloatMode mode;
  return weights_of(bandwidth);
}

std::vector<std::uint32_t> shards_for(const Recipe& recipe, const Network& network) {
  if (network.ports.empty() || recipe.hosts.empty() || shards_of(recipe) < 3) return {};
  std::vector<double> bandwidth = bandwidths_of(recipe.hosts, network);
  if (bandwidth.size() < 3) return {};
  if (recipe.algorithm == Algorithm::two_shot) {
    if (bandwidth.size() != recipe.world) return {};
    bandwidth.clear();
    for (std::uint32_t host : recipe.hosts) {
      const HostPort& port = network.ports[host];
      bandwidth.push_back(1 / std::max(port.out_s_per_byte, port.in_s_per_byte));
    }
  } else if (bandwidth.size() == recipe.world) {
    return {};  // two_shot does the same, without a host's inside
  }
  if (*std::min_element(bandwidth.begin(), bandwidth.end()) == *std::max_element(bandwidth.begin(), bandwidth.end()))
    return {};
  return uneven_shards(bandwidth);
}

}  // namespace gradsync
