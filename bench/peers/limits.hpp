// What the machine can do at most, as lines "limit <tab> NAME <tab> OF <tab> VALUE <tab> UNIT", or in turn with the peers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace bench::limits {

// Takes turns with the peers of one host; obeys the driver as a rank does. Ways: "hop" and "switch", whose time is that of
// one word from core to core and of one change of processes on a core; "mapped", "mapped_nt" and "mapped_blocks", the
// least memory work of an all-reduce of BENCH_FLOOR_RANKS buffers, done in three ways.
void floor();

// Bandwidth of copy and add in the caches and in memory, in bytes read and written.
void memory(bool quick);

// TCP: the other end, until `network` tells it to go; and throughput and latency to it.
void serve(const char* host);
void network(const char* host, const std::string& label, bool quick);

void put(const std::string& name, const std::string& of, double value, const char* unit);
double median(std::vector<double> values);
void pin(int core);
void unpin();
// Zeroed, in pages of 4 KiB, as malloc's are unless asked for otherwise.
void* map(std::size_t bytes);
void unmap(void* memory, std::size_t bytes);

struct Span {
  std::int64_t start_ns, end_ns;  // of the common start, and of the last thread's end
};
// Two pinned threads do work(thread) at once, `rounds` times; before(thread) comes first each time, unmeasured.
std::vector<Span> together(int threads, int rounds, const std::function<void(int)>& work,
                           const std::function<void(int)>& before = {});

}  // namespace bench::limits
