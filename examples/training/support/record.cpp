#include "support/record.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace training {
namespace {

nlohmann::json json_of(const RunRecord& record) {
  auto evaluations = nlohmann::json::array();
  for (const auto& e : record.evaluations)
    evaluations.push_back({{"step", e.step}, {"accuracy", e.accuracy}, {"loss", e.loss}});
  return {{"program", record.program},
          {"reference", record.reference},
          {"workers", record.workers},
          {"batch_per_worker", record.batch_per_worker},
          {"threads", record.threads},
          {"epochs", record.epochs},
          {"seed", record.seed},
          {"learning_rate", record.learning_rate},
          {"overlap", record.overlap},
          {"losses", record.losses},
          {"evaluations", evaluations},
          {"images_per_second", record.images_per_second},
          {"step_s_median", record.step_s_median},
          {"seconds", record.seconds},
          {"gradient_bytes", record.gradient_bytes},
          {"buckets", record.buckets},
          {"replans", record.replans},
          {"message_latency_s", record.message_latency_s},
          {"seconds_per_byte", record.seconds_per_byte},
          {"communication_s", record.communication.under_way_s},
          {"exposed_s", record.communication.exposed_s},
          {"hidden_share", record.communication.hidden_share()},
          {"fingerprints", record.fingerprints}};
}

}  // namespace

void write_record(const RunRecord& record, const std::filesystem::path& file) {
  std::ofstream out(file);
  out << json_of(record).dump(1) << '\n';
  out.close();
  if (!out) throw std::runtime_error(file.string() + ": cannot be written: " + std::strerror(errno));
}

}  // namespace training
