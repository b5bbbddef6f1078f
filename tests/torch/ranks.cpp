#include "ranks.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numbers>
#include <thread>

#include "base/random.hpp"
#include "support/digest.hpp"

namespace gradsync_test {

void on_ranks(std::uint32_t size, const std::function<void(Communicator&)>& body) {
  gradsync::Options options;
  options.timeout = std::chrono::seconds(20);
  std::vector<Communicator> ranks = Communicator::threads(size, options);
  std::vector<std::thread> threads;
  for (Communicator& comm : ranks)
    threads.emplace_back([&] {
      torch::set_num_threads(1);
      try {
        body(comm);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << comm.rank() << ": " << error.what();
        comm.abort("the test failed on another rank");
      }
    });
  for (std::thread& thread : threads) thread.join();
}

Status failure_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const gradsync::Error& error) { return error.status(); }
  return {};
}

std::vector<Tensor> parameters_of(const torch::nn::Module& module) {
  std::vector<Tensor> all;
  for (const Tensor& parameter : module.parameters()) all.push_back(parameter.detach().clone());
  return all;
}

void copy_state(const torch::nn::Module& from, torch::nn::Module& to) {
  torch::NoGradGuard none;
  const auto copy = [](const std::vector<Tensor>& sources, const std::vector<Tensor>& targets) {
    ASSERT_EQ(sources.size(), targets.size());
    for (std::size_t i = 0; i < sources.size(); ++i) targets[i].copy_(sources[i]);
  };
  copy(from.parameters(), to.parameters());
  copy(from.buffers(), to.buffers());
}

double largest_difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  if (a.size() != b.size()) return HUGE_VAL;
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i].sizes() != b[i].sizes()) return HUGE_VAL;
    if (a[i].numel() == 0) continue;
    const double difference = (a[i].to(torch::kFloat64) - b[i].to(torch::kFloat64)).abs().max().item<double>();
    if (!(difference <= largest)) largest = difference;  // NaN stays
  }
  return largest;
}

bool same_bits(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const Tensor x = a[i].contiguous(), y = b[i].contiguous();
    if (x.sizes() != y.sizes() || x.scalar_type() != y.scalar_type()) return false;
    if (x.numel() > 0 && std::memcmp(x.data_ptr(), y.data_ptr(), x.numel() * x.element_size()) != 0) return false;
  }
  return true;
}

bool same_bits_on_all_ranks(Communicator& comm, const std::vector<Tensor>& mine) {
  gradsync::test::Digest digest;
  for (const Tensor& tensor : mine) {
    const Tensor plain = tensor.contiguous();
    digest.add({static_cast<const std::byte*>(plain.data_ptr()),
                static_cast<std::size_t>(plain.numel()) * plain.element_size()});
  }
  const gradsync::test::Sha256 own = digest.take();
  std::vector<std::uint8_t> all(own.size() * static_cast<std::size_t>(comm.size()));
  comm.all_gather(gradsync::view(own), gradsync::view(all));
  for (std::size_t i = 0; i < all.size(); ++i)
    if (all[i] != own[i % own.size()]) return false;
  return true;
}

std::vector<Tensor> gradients_of(const torch::nn::Module& module) {
  std::vector<Tensor> all;
  for (const Tensor& parameter : module.parameters())
    all.push_back(parameter.grad().defined() ? parameter.grad().to_dense().clone() : torch::zeros_like(parameter));
  return all;
}

Tensor noise(std::uint64_t seed, torch::IntArrayRef shape, torch::ScalarType type) {
  gradsync::Random random(gradsync::mix64(seed));
  Tensor values = torch::empty(shape, torch::kFloat64);
  double* const out = values.data_ptr<double>();
  for (std::int64_t i = 0; i < values.numel(); ++i)  // Box and Muller, 1958
    out[i] = std::sqrt(-2 * std::log(1 - random.unit())) * std::cos(2 * std::numbers::pi * random.unit());
  return values.to(type);
}

Tensor share(const Tensor& global, const Communicator& comm) {
  return global.slice(0, comm.rank(), global.size(0), comm.size()).contiguous();
}

MlpImpl::MlpImpl(std::int64_t in, std::int64_t hidden, std::int64_t out) {
  first = register_module("first", torch::nn::Linear(in, hidden));
  second = register_module("second", torch::nn::Linear(hidden, hidden));
  third = register_module("third", torch::nn::Linear(hidden, out));
}

Tensor MlpImpl::forward(const Tensor& x) { return third(torch::tanh(second(torch::tanh(first(x))))); }

}  // namespace gradsync_test
