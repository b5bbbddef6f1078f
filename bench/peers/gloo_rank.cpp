// Gloo over its TCP transport. Ways:
//   ring, bcube          gloo::allreduce, the call that PyTorch's c10d makes
//   hd, ring_chunked     the older algorithm classes
//   hd_polled, old_ring_polled   the same in Gloo's busy-poll mode
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdlib>

#include "rank.hpp"

namespace {

using Context = std::shared_ptr<gloo::rendezvous::Context>;

Context meet(const bench::Contender& me, const char* name) {
  gloo::rendezvous::FileStore files(std::getenv("BENCH_STORE"));
  gloo::rendezvous::PrefixStore store(name, files);
  gloo::transport::tcp::attr attributes;
  attributes.hostname = std::getenv("BENCH_ADDRESS");
  auto context = std::make_shared<gloo::rendezvous::Context>(me.rank, me.ranks);
  std::shared_ptr<gloo::transport::Device> device = gloo::transport::tcp::CreateDevice(attributes);
  context->connectFullMesh(store, device);
  return context;
}

// The older classes number their messages in a way of their own: on one context with the newer calls each could take the
// other's, and hang. Hence contexts.
struct Contexts {
  Context newer, older, polled;
};

std::shared_ptr<gloo::Algorithm> older(const Contexts& c, const std::string& way, float* data, int count) {
  const std::vector<float*> pointers{data};
  if (way == "hd") return std::make_shared<gloo::AllreduceHalvingDoubling<float>>(c.older, pointers, count);
  if (way == "ring_chunked") return std::make_shared<gloo::AllreduceRingChunked<float>>(c.older, pointers, count);
  if (way == "hd_polled") return std::make_shared<gloo::AllreduceHalvingDoubling<float>>(c.polled, pointers, count);
  if (way == "old_ring_polled") return std::make_shared<gloo::AllreduceRing<float>>(c.polled, pointers, count);
  return nullptr;
}

void newer(const Context& context, gloo::AllreduceOptions::Algorithm algorithm, float* data, std::size_t count) {
  gloo::AllreduceOptions options(context);
  options.setAlgorithm(algorithm);
  options.setOutput(data, count);
  options.setReduceFunction(static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>));
  gloo::allreduce(options);
}

}  // namespace

int main() {
  bench::Contender me;
  me.name = "gloo";
  me.rank = bench::number_from_environment("BENCH_RANK");
  me.ranks = bench::number_from_environment("BENCH_RANKS");
  Contexts contexts{meet(me, "newer"), nullptr, nullptr};
  if (std::getenv("BENCH_START_ONLY") == nullptr) contexts.older = meet(me, "older");
  if (std::getenv("BENCH_POLL") != nullptr) {
    contexts.polled = meet(me, "polled");
    for (int r = 0; r < me.ranks; ++r)
      if (r != me.rank) contexts.polled->getPair(r)->setSync(true, true);
  }
  me.prepare = [&contexts](const std::string& way, std::size_t count) {
    auto memory = bench::ordinary_memory(count * sizeof(float));
    auto* data = static_cast<float*>(memory.get());
    if (auto algorithm = older(contexts, way, data, static_cast<int>(count)))
      return bench::Call{memory, data, [algorithm] { algorithm->run(); }};
    using Which = gloo::AllreduceOptions::Algorithm;
    const Which which = way == "bcube" ? Which::BCUBE : Which::RING;
    return bench::Call{memory, data, [&contexts, which, data, count] { newer(contexts.newer, which, data, count); }};
  };
  bench::serve(me);
}
