// What `distsetup probe` measures on this host. Each function takes about `budget_s` and returns its best run: a probe describes the
// machine, not who else is on it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/diagnostic.h"

namespace distsetup {

int num_usable_cores();            // by affinity, not by count of the machine
std::string cpu_model();           // "AMD EPYC 7R13 Processor"; "" = not known
int64_t host_memory_bytes();       // MemTotal, or the cgroup's limit when that is less
double fastest_nic_bytes_per_s();  // of the interfaces that are up and say their speed; 0 = none does

// STREAM's triad a[i] = b[i] + s·c[i] (McCalpin, 1995) over arrays far larger than caches; bytes as STREAM counts them (24 per element
// of 8), over all threads together.
double triad_bytes_per_s(int num_threads, double budget_s);

// A blocked fp32 matrix product of our own on one core: a lower bound of what a tuned library reaches.
double own_gemm_flops_per_s(double budget_s);

// Two processes over TCP on 127.0.0.1: what Gloo has between the ranks of a host.
struct Loopback {
  double bytes_per_s = 0;
  double round_trip_s = 0;
};
Result<Loopback> measure_loopback(double budget_s);

// `distsetup-train --probe`, one thread.
struct LibraryGemm {
  double f32_flops_per_s = 0, bf16_flops_per_s = 0;
};
Result<LibraryGemm> library_gemm(const std::string& trainer, double budget_s);

struct FoundGpu {
  std::string name;
  int64_t memory_bytes = 0;
};
// From nvidia-smi; empty when there is none, or it has no answer within 10 s.
std::vector<FoundGpu> find_gpus();

}  // namespace distsetup
