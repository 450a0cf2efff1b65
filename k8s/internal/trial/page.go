package trial

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

type object = map[string]any

// Failed counts checks and rounds that do not hold.
func (r *Record) Failed() int {
	failed := 0
	for _, check := range r.Checks {
		if !check.Holds {
			failed++
		}
	}
	for _, round := range r.Rounds {
		if !round.holds() {
			failed++
		}
	}
	return failed
}

// byDeath has the races in which nothing dies, and those in which something does.
func (r *Record) byDeath() (quiet, deadly []Round) {
	for _, round := range r.Rounds {
		if round.Killed == "" {
			quiet = append(quiet, round)
		} else {
			deadly = append(deadly, round)
		}
	}
	return quiet, deadly
}

// turns counts races before which the other scheduler took its turn.
func (r *Record) turns() int {
	turns := 0
	for _, round := range r.Rounds {
		if round.Leads != 0 {
			turns++
		}
	}
	return turns
}

func beyond(rounds []Round) int {
	count := 0
	for _, round := range rounds {
		if round.beyond() {
			count++
		}
	}
	return count
}

// Page is what the example `page` of crates/report makes a page of. scale and paper may be none.
func (r *Record) Page(scale *Scale, paper *Paper) object {
	failed := 0
	for _, check := range r.Checks {
		if !check.Holds {
			failed++
		}
	}
	placed, started, overrun := 0, 0, 0
	for _, round := range r.Rounds {
		placed = max(placed, round.Placed, round.Allocated, round.PlacedAgain)
		started = max(started, round.Started, round.StartedAgain)
		if max(round.Started, round.StartedAgain) > places {
			overrun++
		}
	}
	count := func(what string, count, all int) object {
		return object{"count": object{"of": "", "what": what, "count": count, "all": all}}
	}
	quiet, deadly := r.byDeath()
	with, without := median(r.WithClaimMs), median(r.WithoutMs)
	bar := func(name string, value float64, words string) object {
		return object{"name": name, "value": value, "words": words}
	}
	return object{
		"answer": object{
			"question": "Does a node of Kubernetes start more claims than its CPUs hold?",
			"findings": []object{
				count(fmt.Sprintf("races of %d claims for %d places in which more than %d start", atOnce, places, places),
					overrun, len(r.Rounds)),
				count(fmt.Sprintf("races in which nothing dies and kube-scheduler itself gives more than %d a place", places),
					beyond(quiet), len(quiet)),
				count("races in which something dies and it does", beyond(deadly), len(deadly)),
				count("checks that failed", failed, len(r.Checks)),
			},
			"picture": object{
				"title": fmt.Sprintf("Claims of %d at once, the most of %d races", atOnce, len(r.Rounds)),
				"groups": []object{{
					"name": "a node with two CPUs",
					"bars": []object{
						bar("room for", places, fmt.Sprint(places)),
						bar("started", float64(started), fmt.Sprint(started)),
						bar("placed", float64(placed), fmt.Sprint(placed)),
					},
				}},
			},
		},
		"details": object{
			"command": fmt.Sprintf("tools/kubernetes run --rounds %d --turns %d --waits %d", len(r.Rounds)-r.turns(), r.turns(),
				len(r.WithClaimMs)),
			"warning": fmt.Sprintf("It was written by Kubernetes %s at revision %s on %s; the control plane was up after %.0f s. "+
				"etcd, kube-apiserver, kube-controller-manager and two kube-schedulers are real, and so is the driver. "+
				"The node is an object: the check stands in for its kubelet, makes pods' cgroups and calls the driver's plugin. "+
				"No VM runs.", r.Release, r.Revision, r.When.Format("2006-01-02 15:04 UTC"), r.UpSecs),
			"tables": strings.Join(slices.Concat(r.checkTable(), r.roundTable(), r.waitTable(with, without), scale.table(), paper.table()), "\n"),
		},
	}
}

func (r *Record) checkTable() []string {
	lines := []string{"## Checks", "", "| what | found | holds |", "|---|---|---|"}
	for _, check := range r.Checks {
		found := strings.ReplaceAll(strings.ReplaceAll(check.Found, "|", "/"), "\n", " ")
		lines = append(lines, fmt.Sprintf("| %s | %s | %s |", check.What, found, yes(check.Holds)))
	}
	return append(lines, "")
}

func yes(holds bool) string {
	if holds {
		return "yes"
	}
	return "**no**"
}

func (r *Record) roundTable() []string {
	lines := []string{
		"## Races", "",
		fmt.Sprintf("%d pods at once, each with a claim of %d us in every %d us, for %d places. Three of those placed then go,",
			atOnce, budgetUs, periodUs, places),
		"and three of those that wait take their places. What is killed, is killed once the first pod is placed, and started anew.",
		"kube-scheduler looks again after those that wait every " + looksAgainAfter + "; by itself it would after 5 minutes.",
		"There are two, of which one leads. Where they take turns, the one that has led ends before the race, and the other leads.", "",
		"| killed | races | claims allocated | placed | started | placed again | started again | fullest CPU, millionths | seconds until placed, median |",
		"|---|---|---|---|---|---|---|---|---|",
	}
	var names []string
	of := map[string][]Round{}
	for _, round := range r.Rounds {
		name := round.row()
		if of[name] == nil {
			names = append(names, name)
		}
		of[name] = append(of[name], round)
	}
	for _, name := range names {
		rounds := of[name]
		var seconds []float64
		for _, round := range rounds {
			seconds = append(seconds, round.Seconds)
		}
		lines = append(lines, fmt.Sprintf("| %s | %d | %s | %s | %s | %s | %s | %s | %.1f |", name, len(rounds),
			span(rounds, func(r Round) int { return r.Allocated }), span(rounds, func(r Round) int { return r.Placed }), span(rounds, func(r Round) int { return r.Started }), span(rounds, func(r Round) int { return r.PlacedAgain }), span(rounds, func(r Round) int { return r.StartedAgain }),
			span(rounds, func(r Round) int { return int(r.MostPpm) }),
			median(seconds)))
	}
	return append(lines, "",
		"Where more are placed than there is room for, the API server has stored an allocation, and its answer was lost. kube-scheduler",
		"takes that for a failure and gives the same part away again. [The report](../upstream/kubernetes-allocation.md) has its lines.",
		"The host starts no more than it holds. It may start fewer for a while, where a CPU has too many pods and the other has room.", "")
}

// row names those that stand in one row of the table.
func (r Round) row() string {
	switch {
	case r.Leads != 0:
		return fmt.Sprintf("nothing; kube-scheduler %d has its turn", r.Leads)
	case r.Killed == "":
		return "nothing"
	default:
		return r.Killed
	}
}

// span is the least and the greatest of some rounds, or the one value of all.
func span(rounds []Round, of func(Round) int) string {
	least, most := math.MaxInt, math.MinInt
	for _, round := range rounds {
		least, most = min(least, of(round)), max(most, of(round))
	}
	if least == most {
		return fmt.Sprint(least)
	}
	return fmt.Sprintf("%d to %d", least, most)
}

func (r *Record) waitTable(with, without float64) []string {
	return []string{
		"## How long a pod waits for its node", "",
		"From the client's request to its news of the node, one pod at a time, in turn; milliseconds. A pod with a claim waits for",
		"the controller that makes the claim of its template, too. The machine does other work meanwhile.", "",
		"| pod | n | p50 | p99 |", "|---|---|---|---|",
		fmt.Sprintf("| with a claim | %d | %.0f | %.0f |", len(r.WithClaimMs), with, percentile(r.WithClaimMs, 99)),
		fmt.Sprintf("| without | %d | %.0f | %.0f |", len(r.WithoutMs), without, percentile(r.WithoutMs, 99)),
	}
}

func median(values []float64) float64 { return percentile(values, 50) }

// percentile is the nearest rank; 0 of none.
func percentile(values []float64, of float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(of / 100 * float64(len(sorted))))
	return sorted[max(rank-1, 0)]
}
