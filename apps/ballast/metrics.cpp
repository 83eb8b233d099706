// SPDX-License-Identifier: Apache-2.0
#include "metrics.hpp"

#include "ballast/base/error.hpp"
#include "ballast/base/file.hpp"
#include "ballast/base/log.hpp"
#include "ballast/base/units.hpp"
#include "ballast/device/pace.hpp"

#include <cstdio>
#include <fstream>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace ballast {
namespace {

/// Returns the lines of steps up to `last_step`; a line that a crash cut off goes, too.
std::string lines_until(std::string const& text, std::int64_t last_step) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) {
    auto const json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object() && json.value("step", last_step + 1) <= last_step) result += line + "\n";
  }
  return result;
}

}  // namespace

Metrics::Metrics(std::filesystem::path path, std::int64_t first_step) : path_(std::move(path)) {
  try {
    std::string const old = std::filesystem::exists(path_) ? read_file(path_) : "";
    write_file_atomically(path_, lines_until(old, first_step));
  } catch (std::exception const& error) {
    give_up(error.what());
  }
}

void Metrics::add(StepReport const& report, std::optional<double> validation_loss) {
  if (!works_) return;
  nlohmann::ordered_json line = {{"step", report.step},
                                 {"loss", report.loss},
                                 {"step_s", report.step_s},
                                 {"tokens_per_s", report.weight / report.step_s}};
  if (validation_loss) line["validation_loss"] = *validation_loss;
  // Opened anew for each line: what was written is there after a crash, and the file may be moved while the run goes on.
  std::ofstream file(path_, std::ios::app);
  file << line.dump() << "\n" << std::flush;
  if (!file) give_up("cannot write");
}

void Metrics::give_up(std::string const& reason) {
  works_ = false;
  log(LogLevel::warning, fmt::format("{}: {}; no more metrics from this run", path_.string(), reason));
}

Progress::Progress(std::int64_t first_step, std::int64_t num_steps, std::int64_t log_every)
    : first_step_(first_step),
      num_steps_(num_steps),
      log_every_(log_every),
      is_terminal_(isatty(STDERR_FILENO) == 1),
      start_s_(wall_seconds()),
      last_line_s_(start_s_) {}

void Progress::step(StepReport const& report) {
  constexpr double line_every_s = 30.0;
  constexpr double rewrite_every_s = 0.2;
  double const now_s = wall_seconds();
  bool const is_first = report.step == first_step_ + 1;
  bool const is_last = report.step == num_steps_;
  bool const is_due = is_terminal_     ? now_s - last_line_s_ >= rewrite_every_s
                      : log_every_ > 0 ? report.step % log_every_ == 0
                                       : now_s - last_line_s_ >= line_every_s;
  if (!is_due && !is_first && !is_last) return;
  last_line_s_ = now_s;

  double const per_step_s = (now_s - start_s_) / static_cast<double>(report.step - first_step_);
  auto text = fmt::format("step {}/{}  loss {:.4f}  {}/step  {:.0f} tokens/s", report.step, num_steps_, report.loss,
                          format_seconds(report.step_s), report.weight / report.step_s);
  if (!is_last)
    text += fmt::format("  {} to go", format_seconds(per_step_s * static_cast<double>(num_steps_ - report.step)));
  if (!is_terminal_) {
    log(LogLevel::info, text);
    return;
  }
  std::fprintf(stderr, "\r\033[K%s", text.c_str());
  std::fflush(stderr);
  is_open_ = true;
  if (is_last) end_line();
}

void Progress::end_line() {
  if (std::exchange(is_open_, false)) std::fputc('\n', stderr);
}

}  // namespace ballast
