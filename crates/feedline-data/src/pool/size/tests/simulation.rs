//! A pool under virtual time: workers that compute and sleep, cores that they share with the jobs, jobs that take batches.

use crate::pool::size::Window;

const BATCH: u64 = 16;
/// Batches in flight for each worker.
const PREFETCH: u64 = 2;
const WINDOW_SECS: f64 = 0.3;
/// From when a worker is asked for to its first sample.
const START_MILLIS: f64 = 30.0;

/// What a sample costs, in the mean.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    pub cpu_millis: f64,
    pub sleep_millis: f64,
}

/// A training job. It takes a batch, and computes.
#[derive(Clone, Copy, Debug)]
pub struct Job {
    pub from_secs: f64,
    pub to_secs: f64,
    pub step_millis: f64,
    /// How many cores it keeps busy in its steps.
    pub cpu_share: f64,
}

/// What is simulated. All jobs take all batches, so the slowest sets the pace.
#[derive(Clone, Debug)]
pub struct Scene {
    pub cores: f64,
    pub cost: Cost,
    pub jobs: Vec<Job>,
    pub seed: u64,
}

pub struct Random(pub u64);

impl Random {
    /// From 0 to 1.
    pub fn share(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[derive(Clone, Copy)]
enum Doing {
    Starting { until: f64 },
    Nothing,
    Sleeping { until: f64, cpu: f64 },
    Computing { left: f64 },
}

struct Worker {
    doing: Doing,
    retires: bool,
}

pub struct Pool<'a> {
    scene: &'a Scene,
    random: Random,
    now: f64,
    workers: Vec<Worker>,
    wished: usize,
    /// Samples that were begun, finished, and taken.
    begun: u64,
    made: u64,
    taken: u64,
    /// When each job has finished its step.
    free_at: Vec<f64>,
    waited: f64,
    busy: f64,
    cpu: f64,
}

impl<'a> Pool<'a> {
    pub fn new(scene: &'a Scene, workers: usize, from_secs: f64) -> Self {
        let mut pool = Self {
            scene,
            random: Random(scene.seed),
            now: from_secs * 1000.0,
            workers: Vec::new(),
            wished: workers,
            begun: 0,
            made: 0,
            taken: 0,
            free_at: vec![0.0; scene.jobs.len()],
            waited: 0.0,
            busy: 0.0,
            cpu: 0.0,
        };
        pool.resize(workers);
        pool
    }

    fn resize(&mut self, wished: usize) {
        self.wished = wished;
        for (number, worker) in self.workers.iter_mut().enumerate() {
            worker.retires = number >= wished;
        }
        while self.workers.len() < wished {
            let doing = Doing::Starting { until: self.now + START_MILLIS };
            self.workers.push(Worker { doing, retires: false });
        }
    }

    fn up(&self) -> Option<usize> {
        let is_up =
            self.workers.iter().all(|worker| !worker.retires && !matches!(worker.doing, Doing::Starting { .. }));
        is_up.then_some(self.workers.len())
    }

    /// Samples a second that are taken from one time to the other. Each window is given to `decide`.
    pub fn rate(&mut self, from_secs: f64, to_secs: f64, mut decide: impl FnMut(Window) -> usize) -> f64 {
        let mut taken_before = None;
        let mut began: Option<(f64, usize, u64, f64, f64, f64)> = None;
        while self.now < to_secs * 1000.0 {
            self.advance(began.map_or(to_secs * 1000.0, |(at, ..)| at + WINDOW_SECS * 1000.0).min(to_secs * 1000.0));
            if self.now >= from_secs * 1000.0 {
                taken_before.get_or_insert(self.taken);
            }
            let Some(up) = self.up() else {
                began = None;
                continue;
            };
            let mark = (self.now, up, self.made, self.waited, self.busy, self.cpu);
            match began {
                Some((at, workers, made, waited, busy, cpu)) if self.now >= at + WINDOW_SECS * 1000.0 => {
                    let wished = decide(Window {
                        workers,
                        secs: (self.now - at) / 1000.0,
                        samples: self.made - made,
                        waited_secs: (self.waited - waited) / 1000.0,
                        busy_secs: (self.busy - busy) / 1000.0,
                        cpu_secs: (self.cpu - cpu) / 1000.0,
                    });
                    self.resize(wished);
                    began = self.up().map(|up| (mark.0, up, mark.2, mark.3, mark.4, mark.5));
                }
                Some(_) => {}
                None => began = Some(mark),
            }
        }
        (self.taken - taken_before.unwrap_or(0)) as f64 / (to_secs - from_secs)
    }

    /// Goes on to the next moment at which something happens, but not past the limit.
    fn advance(&mut self, limit: f64) {
        self.jobs_take();
        self.begin();
        let (now, scene) = (self.now, self.scene);
        let computing = self.workers.iter().filter(|worker| matches!(worker.doing, Doing::Computing { .. })).count();
        let stepping: Vec<usize> = self.running_jobs().filter(|&job| now < self.free_at[job]).collect();
        let jobs: f64 = stepping.iter().map(|&job| scene.jobs[job].cpu_share).sum();
        let share = (scene.cores / (computing as f64 + jobs).max(1e-9)).min(1.0);
        let is_waiting = stepping.is_empty() && self.running_jobs().next().is_some();
        let ends = self.workers.iter().filter_map(|worker| match worker.doing {
            Doing::Nothing => None,
            Doing::Starting { until } | Doing::Sleeping { until, .. } => Some(until),
            Doing::Computing { left } => Some(now + left / share),
        });
        let changes = scene.jobs.iter().flat_map(|job| [job.from_secs * 1000.0, job.to_secs * 1000.0]);
        let events = ends.chain(changes).chain(stepping.iter().map(|&job| self.free_at[job]));
        let next = events.filter(|&at| at > now).fold(limit, f64::min);
        let passed = next - now;
        self.now = next;
        self.waited += if is_waiting { passed } else { 0.0 };
        for worker in &mut self.workers {
            match &mut worker.doing {
                Doing::Nothing => {}
                Doing::Starting { until } => {
                    if next >= *until {
                        worker.doing = Doing::Nothing;
                    }
                }
                Doing::Sleeping { until, cpu } => {
                    self.busy += passed;
                    if next >= *until {
                        worker.doing = Doing::Computing { left: *cpu };
                    }
                }
                Doing::Computing { left } => {
                    self.busy += passed;
                    self.cpu += passed * share;
                    *left -= passed * share;
                    if *left <= 1e-6 {
                        worker.doing = Doing::Nothing;
                        self.made += 1;
                    }
                }
            }
        }
        self.workers.retain(|worker| !(worker.retires && matches!(worker.doing, Doing::Nothing)));
    }

    fn running_jobs(&self) -> impl Iterator<Item = usize> + '_ {
        let secs = self.now / 1000.0;
        let is_running = move |job: &Job| (job.from_secs..job.to_secs).contains(&secs);
        (0..self.scene.jobs.len()).filter(move |&job| is_running(&self.scene.jobs[job]))
    }

    fn jobs_take(&mut self) {
        loop {
            let running: Vec<usize> = self.running_jobs().collect();
            if running.is_empty() || running.iter().any(|&job| self.free_at[job] > self.now) {
                return;
            }
            if self.made < self.taken + BATCH {
                return;
            }
            self.taken += BATCH;
            for job in running {
                self.free_at[job] = self.now + self.scene.jobs[job].step_millis;
            }
        }
    }

    fn begin(&mut self) {
        let window = self.wished.max(2) as u64 * PREFETCH * BATCH;
        for worker in &mut self.workers {
            if !matches!(worker.doing, Doing::Nothing) || worker.retires || self.begun >= self.taken + window {
                continue;
            }
            self.begun += 1;
            let Cost { cpu_millis, sleep_millis } = self.scene.cost;
            let spread = 0.5 + self.random.share();
            let cpu = cpu_millis * (0.5 + self.random.share());
            let until = self.now + sleep_millis * spread;
            worker.doing =
                if until > self.now { Doing::Sleeping { until, cpu } } else { Doing::Computing { left: cpu } };
        }
    }
}
